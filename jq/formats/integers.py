"""Integer formats: `jq.formats.affine` of every width."""

from jq.formats.affine import Affine

_WIDTHS = {
    2: "2-bit integers, four per byte",
    3: "3-bit integers, eight in three bytes",
    4: "4-bit integers, two per byte",
    8: "8-bit integers",
    16: "16-bit integers",
}
_UNSIGNED = (2, 4, 8)

for bits, text in _WIDTHS.items():
    type(f"Int{bits}", (Affine,), {"name": f"int{bits}", "bits": bits, "description": text})
for bits in _UNSIGNED:
    text = f"unsigned {bits}-bit integers, held as signed ones"
    own = {"name": f"uint{bits}", "bits": bits, "unsigned": True, "description": text}
    type(f"UInt{bits}", (Affine,), own)
