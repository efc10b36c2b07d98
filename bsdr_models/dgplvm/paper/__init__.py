"""The objective of the paper, as published."""
