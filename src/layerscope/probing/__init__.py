"""What labels can be read from each layer: nu, other measures against labels, probes, robustness."""
