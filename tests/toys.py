"""Small data, models and helpers that tests of several folders share."""

from functools import wraps


def stopped(function, call, calls=None):
    """The function, stopped by the user at one of its calls; the list ``calls`` grows with them."""
    calls = [] if calls is None else calls

    @wraps(function)
    def tired(*arguments, **options):
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return tired
