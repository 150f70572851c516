"""What people read about a quantized model."""
