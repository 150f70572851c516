"""Datasets: samples of an npz file, a folder of images or a user's loader, as batches that fit a network's inputs."""

from mrt.datasets.dataset import Dataset
from mrt.datasets.load import content_digest, load_dataset

__all__ = ["Dataset", "content_digest", "load_dataset"]
