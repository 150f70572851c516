"""What Relay and Relax have in common: TVM's operators with their attributes and layouts, whatever carries them."""
