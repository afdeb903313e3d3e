"""The executor that computes with plain torch on a CPU, in float32."""
