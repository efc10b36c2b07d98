"""Types of the public names, which are loaded on first use."""

from bsdr_models import plots as plots
from bsdr_models.bm2pca.estimator import BM2PCAClassifier as BM2PCAClassifier
from bsdr_models.bm2pca.priors import BM2PCAPriors as BM2PCAPriors
from bsdr_models.papers.bm2pca.regressor import BM2PCARegressor as BM2PCARegressor
from bsdr_models.bsdr.estimator import BSDRClassifier as BSDRClassifier
from bsdr_models.bsdr.estimator import BSDRRegressor as BSDRRegressor
from bsdr_models.dgplvm.estimator import DGPLVMClassifier as DGPLVMClassifier
from bsdr_models.dgplvm.priors import DGPLVMMapping as DGPLVMMapping
from bsdr_models.dgplvm.priors import DGPLVMOptimization as DGPLVMOptimization
from bsdr_models.dgplvm.priors import DGPLVMPriors as DGPLVMPriors
from bsdr_models.papers.bm2pca.regressor import EpsilonInsensitiveLoss as EpsilonInsensitiveLoss
from bsdr_models.transformers.centering import GroupCentering as GroupCentering
from bsdr_models.bm2pca.priors import HingeLoss as HingeLoss
from bsdr_models.bsdr.priors import HierarchicalPriors as HierarchicalPriors
from bsdr_models.compare.plane import PredictionPlane as PredictionPlane
from bsdr_models.options import Sampling as Sampling
from bsdr_models.compare.stacking import StackedClassifier as StackedClassifier
from bsdr_models.transformers.whitening import SupervisedWhitening as SupervisedWhitening
from bsdr_models.papers.alignment import align_draws as align_draws
from bsdr_models.compare.centering import compare_centering as compare_centering
from bsdr_models.compare.comparison import compare_models as compare_models
from bsdr_models.compare.cross_validation import cross_validated_map as cross_validated_map
from bsdr_models.diagnosis import diagnose as diagnose
from bsdr_models.compare.stability import feature_stability as feature_stability
from bsdr_models.papers.traces import from_trace as from_trace
from bsdr_models.persistence import load as load
from bsdr_models.html_report import report as report
from bsdr_models.papers.groups import predict_groups as predict_groups
from bsdr_models.compare.class_shares import shift_class_shares as shift_class_shares

__version__: str
