"""Hand-off between a device stream and a host proxy through one page of host memory."""
