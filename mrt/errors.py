"""The errors that MRT raises for what a user can mend: each says what was found, what is needed and what to do."""


class MRTError(Exception):
    """Base of every error that a user's input can cause; its text is one line that prints, whatever files say."""

    def __str__(self) -> str:
        text = " ".join(super().__str__().splitlines())
        # Half of a pair of surrogates has no UTF-8, and control characters move a terminal's cursor.
        return "".join(c if c.isprintable() or c == " " else ascii(c)[1:-1] for c in text)


class GraphError(MRTError):
    """A graph, symbol or operator is malformed, or an operator does not fit its inputs."""


class UnsupportedOperatorError(MRTError):
    """A model uses operators that a reader or the quantizer does not cover; lists every one of them."""


class ModelFileError(MRTError):
    """A model file is missing, truncated or not what its name says."""


class DataError(MRTError):
    """Data or parameters are unusable: a missing array, a wrong rank or dtype, NaN or infinity."""


class ConfigError(MRTError):
    """A configuration is wrong; names the key, what was found and what is needed."""


class QuantizationError(MRTError):
    """A network cannot be made integer as asked, for example because an accumulator needs more than 32 bits."""


class VerificationError(ModelFileError):
    """A saved model does not prove what it claims."""


class CompilationError(MRTError):
    """A graph cannot be compiled or run as asked."""


class PluginError(MRTError):
    """A package of the entry points `mrt.plugins` cannot be loaded; names the package and what failed."""


class BusyError(MRTError):
    """Another process is writing into the folder of results."""


class ClusterError(MRTError):
    """Workers on other processes or machines cannot be used, or were lost; names what failed."""


class DeviceError(MRTError):
    """A device cannot be reached, does not fit, or ended its session; names it and what was being done."""
