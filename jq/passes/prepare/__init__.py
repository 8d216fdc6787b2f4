"""Float programs become easier to quantize: folded, unrolled, mended, marked."""
