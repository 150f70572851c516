"""The proof that a model is integer-only within 32 bits: written once, re-derived by whoever asks."""

from mrt.certificate.certificate import CERTIFICATE_FILE, Certificate, TensorFact, certify, derive, vouch
from mrt.certificate.verify import Summary, Verified, open_verified, verify

__all__ = [
    "CERTIFICATE_FILE",
    "Certificate",
    "Summary",
    "TensorFact",
    "Verified",
    "certify",
    "derive",
    "open_verified",
    "verify",
    "vouch",
]
