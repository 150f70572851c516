"""Factors of channels that cancel in the float network and make its tensors and weights lose less in integers."""
