"""What the estimators of all models share: the fit, predictions, calibration."""
