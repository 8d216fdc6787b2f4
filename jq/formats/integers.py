"""Integer formats: `jq.formats.affine` of every width."""

from jq.formats.affine import Affine


class Int2(Affine):
    name, bits = "int2", 2
    description = "2-bit integers, four per byte"


class Int3(Affine):
    name, bits = "int3", 3
    description = "3-bit integers, eight in three bytes"


class Int4(Affine):
    name, bits = "int4", 4
    description = "4-bit integers, two per byte"


class Int8(Affine):
    name, bits = "int8", 8
    description = "8-bit integers"


class Int16(Affine):
    name, bits = "int16", 16
    description = "16-bit integers"


class UInt2(Affine):
    name, bits, unsigned = "uint2", 2, True
    description = "unsigned 2-bit integers, held as signed ones"


class UInt4(Affine):
    name, bits, unsigned = "uint4", 4, True
    description = "unsigned 4-bit integers, held as signed ones"


class UInt8(Affine):
    name, bits, unsigned = "uint8", 8, True
    description = "unsigned 8-bit integers, held as signed ones"
