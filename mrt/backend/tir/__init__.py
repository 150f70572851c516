"""Scalar expressions and statements of TVM's TIR: what all that makes code is written with."""
