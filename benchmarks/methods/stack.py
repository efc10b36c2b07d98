"""The three models stacked, with their defaults."""

from benchmarks.methods.base import Fitted, Method, of_classifier
from benchmarks.protocols import Training
from bsdr_models import StackedClassifier


def stack(training: Training, n_components: int, seed: int) -> Fitted:
    """With its own probabilities, whatever the number of components."""
    model = StackedClassifier(random_state=seed).fit(training.X, training.y)
    record = {"weights": model.weights_.round(4).tolist()}
    return of_classifier(model, training, record=record)


METHODS = {"stack": Method(fit=stack, modules=("bsdr_models.stacking",), full=True)}
