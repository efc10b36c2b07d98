"""Special moments, factors and linear algebra: NumPy, SciPy and Numba, no state."""
