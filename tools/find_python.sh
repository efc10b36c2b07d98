#!/bin/sh
# Print the first Python of 3.12 or newer on the PATH, or say how to get one.
for name in python3 python3.14 python3.13 python3.12 python; do
    if command -v "$name" >/dev/null 2>&1 &&
        "$name" -c 'import sys; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1; then
        command -v "$name"
        exit 0
    fi
done
echo "bsdr_models needs Python 3.12 or newer, and none was found on the PATH." >&2
echo "Install one (system packages, pyenv, uv or conda), then run make again." >&2
exit 1
