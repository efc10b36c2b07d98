"""What a fit is given: samples, targets and groups, validated, and the divisions of the samples."""
