"""A dense, differentiable DeepSeek-V4.1 in plain torch, written from the formulas and independent of the engine.

It judges the engine in the tests and trains small models. It has no caches: a forward always sees whole sequences.
"""

from dense_v41.config import DenseConfig
from dense_v41.draft import DraftOutput
from dense_v41.folder import load_folder
from dense_v41.model import DenseModel, DenseOutput
from dense_v41.quantise import Quantisation

__all__ = ["DenseConfig", "DenseModel", "DenseOutput", "DraftOutput", "Quantisation", "load_folder"]
