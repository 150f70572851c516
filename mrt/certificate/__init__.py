"""The proof that a model is integer-only within 32 bits: written once, re-derived by whoever asks."""

from mrt.certificate.certificate import CERTIFICATE_FILE, Certificate, TensorFact, certify
from mrt.certificate.verify import Summary, verify

__all__ = ["CERTIFICATE_FILE", "Certificate", "Summary", "TensorFact", "certify", "verify"]
