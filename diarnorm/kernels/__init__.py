"""Kernels: RMSNorm, alone and with the residual addition in front of it, one public function each."""
