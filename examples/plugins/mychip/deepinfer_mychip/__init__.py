"""An example backend. It computes on the host, so that it can be tried anywhere; a real one would open a device."""
