"""Bit fields of ggml blocks: reading over `ArrayOps`, writing in NumPy.

Bytes travel as i8 bits; a field is masked right after its shift, so signs never matter."""

from base64 import b85decode
from dataclasses import dataclass
from functools import cache
from zlib import decompress

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, ArrayOps


def cut(ops: ArrayOps, x: Array, start: int, stop: int) -> Array:
    """`x[..., start:stop]`."""
    shape = ops.shape(x)
    return ops.slice(x, [0] * (len(shape) - 1) + [start], [*shape[:-1], stop])


def fields(ops: ArrayOps, x: Array, run: int, width: int) -> Array:
    """Splits every byte into its `8 / width` fields.

    Bytes come in runs of `run`: first the lowest field of each byte of the run, then the
    next field of each, and so on. x: i8 [..., n] -> i8 [..., n * 8 / width].
    """
    *lead, n = ops.shape(x)
    shifts = np.arange(0, 8, width, dtype=np.int8)
    shape = [*lead, n // run, len(shifts), run]
    axis = len(shape) - 1
    grouped = ops.reshape(x, [*lead, n // run, run])
    wide = ops.broadcast(grouped, shape, [*range(axis - 1), axis])
    moved = ops.shift_right(wide, ops.broadcast(ops.constant(shifts), shape, [axis - 1]))
    return ops.reshape(ops.bit_and(moved, (1 << width) - 1), [*lead, n * len(shifts)])


def half(ops: ArrayOps, x: Array) -> Array:
    """f16 values from little-endian byte pairs. x: i8 [..., 2] -> f32 [..., 1]."""
    low = ops.bit_and(ops.convert(cut(ops, x, 0, 1), np.int16), 0xFF)
    high = ops.shift_left(ops.convert(cut(ops, x, 1, 2), np.int16), 8)
    return ops.convert(ops.bitcast(ops.bit_or(low, high), np.float16), np.float32)


def pack(values: np.ndarray, run: int, width: int) -> np.ndarray:
    """Inverse of `fields`: u8 [blocks, n] of `width`-bit values -> u8 [blocks, n * width / 8]."""
    count = 8 // width
    grouped = values.reshape(len(values), -1, count, run)
    out = grouped[:, :, 0].copy()
    for i in range(1, count):
        out |= grouped[:, :, i] << np.uint8(i * width)
    return out.reshape(len(values), -1)


@dataclass(frozen=True)
class Numbers:
    """Numbers of a block whose bits lie in several stretches of its bytes.

    Attributes:
        stretches: those of the lowest bits first: start and end of the bytes, and `run` and `width`
            of `fields`.
    """

    stretches: tuple[tuple[int, int, int, int], ...]

    def read(self, ops: ArrayOps, blocks: Array) -> Array:
        """i8 [..., bytes] -> i8 [..., numbers], from 0 on; those of 8 bits have a sign."""
        found, low = None, 0
        for start, stop, run, width in self.stretches:
            part = cut(ops, blocks, start, stop)
            part = part if width == 8 else fields(ops, part, run, width)
            found = part if found is None else ops.bit_or(found, ops.shift_left(part, low))
            low += width
        return found

    def write(self, values: np.ndarray, out: np.ndarray) -> None:
        """Writes u8 [n, numbers] into u8 out [n, bytes], whose other bytes stay."""
        for start, stop, run, width in self.stretches:
            out[:, start:stop] = pack(values & ((1 << width) - 1), run, width)
            values = values >> width


def round_to_half(x: np.ndarray) -> np.ndarray:
    """f32 values of f16, refused where f16 overflows."""
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise FormatError(f"a ggml block scale of {np.abs(x).max():g} is beyond float16")
    return rounded


def half_bytes(x: np.ndarray) -> np.ndarray:
    """f32 [n, 1] -> u8 [n, 2]: little-endian f16, refused where f16 overflows."""
    return round_to_half(x).astype("<f2").view(np.uint8)


# Grids of ggml's IQ types: the points that a group of 8 or 4 values can be.
#
# A grid is a sorted set of points, each the digits of a number in base 3 (8 values) or 8 (4
# values), the first value lowest. A set is one bit for each number that there is, and all six
# together are compressed. The sets are facts of the file format; tests compare with `gguf.quants`.
_SETS = decompress(
    b85decode(
        "c-nPWL9ZM~5w2<Vh|b`kUT4;rgGIm9vo!1}5eY}s<ILF4kxgdonLH3#nMjFpLh`}R#WJ)<&tklQw1ya8K<c-$rD0C+"
        "2M|a`LgM0QIkAwi5E79B7funU5URUpc6J}mX!pI@uCA)Ds=uo4ZkwoOld1v{O@IM_AP@lo^9B$wQq`a$K>{2{vBqxz"
        "pukM2a6F3aME9{;47w*0jNvp<gHZTFj21r1O=N<gNvFlSuXW)bt&GUvsQV$SPCC=(r_#=nQwsWdKq{1yezxdzI+^)6"
        "1Ohf62QR>EFoq!mbLtZ?*gO1$*=fuGT}7&32pO0fj5F0I#eUhuVid}%hz;EVBT;J>#cGaVV!%w+#rCP}G}Vd7FwKIj"
        "hbW_G#=aKA;m2gNTM9u|iYo(_He?9WdbBxL8)2<`7{XJmPs2KH=yOP(skQO2&ylT=9M0x5-k<r1&!5(|?Yv!9%~DO<"
        "Hds~+**cwLtq4#G0wZb+gHVJ-7Q!ZxX~(`+*O4oTj^oTA6v`21+Rjmn^afEBKv4JTGzOP8XQb-mvTNdAwT7;y>J9Lu"
        "L+uQL2$=EORh@DZCzWMhUo=jr`rNTfSud=&Y3o4Q<WF44Hm)vYm|%F7>J4I|Y&|IyxdkUCQG^Xeqg3a$vi=9&bm_Gr"
        "3(%Xq24d68OnNFez}6ayz-$oG@q>{Kl8`Qk%)kmZ8RbZ$$Ql=1S+m2u1GSN8(YGVgXw?W~H)vE>yI`X*S+1g~EgG`M"
        "Pcjrc&Nj(5o%JwdnGh};%9T6Yq&FIwm}bD%K}LrwL~M4Jq5mSc#9CXjxg=5VMZjiv*-WN!zU-EuL#>Cu2-g)&+vvJA"
        "9B(7tM9A@=6;RjsZ;2C{>2e;lZG;~~e-zCl%hskfT1XS3TQNbAS@DQzw`*Y0%+Yc)kFXw%i#CEFsw$zuQgSe8MAl%W"
        "9VM|I=fa3EVkcs**LF;w&YO9qg{om1U|BjX26I!d8YURUhQYeux~y`IFqq9wvnm@~q4>uXjfuI5CMFxYLs&J!glurN"
        "t!oD0L_yUfL<1~xA~Ey{0s-rn1`Re=3;r+U$aaFL(^?sX4!jK+MYi(}23@zX{8}~|5fWxOZga>C3}HE==IaKTm946S"
        "*=)F`!!~H-dII)|I-1tlYhdZXV>76mP77DL?z&4KvNEDz)uD{Ym{F_!#9G#dE6bL3T6R%b-*_BjpOM3wt-?0VTMcK7"
        "`VjMxy;Ih2?5wX-61mnm?+mK0;~v^yNDp+a2@n;jE=}#dXy2Eo=6v~+@mn-czs(C8?FUgzC(C<{_GL^*$AQQG?+btQ"
        "w9K9>A3_3I`BLn2f?9hcFNjb*Kf=G_bFaXWXrCTE)$*l!`Bk6hZ$q&?E>nKy6VAgB&{tT7bnMaWFZ@@tF}-;8c6zmZ"
        "^P5k0XHVnHCz9F4KVLp86G-SdpJlP+P+a&z`qzX$PT>Z*QRX2}6e4V5x>)W__kAuOjNhbNF`Xiel=5E(ku3O$aqRg="
        "CFOB?ES2F01>eW_BYcTX1QGghYL3n5{TTAN;5Uy%8bb~pcqwUF0Nwd%el;A=ZkFROL7Z_JCUOg6IO_Sk&llyZ^kA0k"
        "e)pq;gZIW~@%Oh5^2v(@J-S80yx=8$;p=IVe)1jv%VP-=itz}j=O3hLIP<;uTsFIYV)nx)ssA|Tc^2-baPype@zTlN"
        "YyWvXzVh4aKX`KK-~ave-QUfw{o-%``0UfSFYVm@QJ%2!`sJ;XpC3PruYNY$zWWDHoPPP(>*MU?W5AI4nQ{kYTx9Ri"
        "pU1bKi$h4^CGSrVa}M9g%krsw=X&m6l-`H`yz<5KcUjD?l-I)M$M*$fCJ&UWn=~$eIZMuM`3vtj<mqX71G@)i?3LKA"
        "a!JGT@7a!BW$klA8%3p0(ga4pQ~pN&-ifmGfM)TT7m__bF<Oh9Hpr;AGF}#i2bs~@8-q1?hK}OwI4(h%mihAsGAqzU"
        "?3G!_L%1`NiGTfJc!KA%N9Qr*lV81B($~Uc-}jHa>tzy|@WyE*k}S)|<!*Y%PdR7Q&l89*yH(CCMelqME|ikr2lksu"
        "x5^qR9l!EA#VSBw*^KU{65^wa@NNY4qov`-SXzXmZ9WP!!f^ycmd2oJaxJlp!b~Sx;`ZK1og+19tf{Ls4j%I$jA7NB"
        "s4cfSph!Zdv&J+1UAi4C)6$+!G$?86HCffGJ(x+lR?}u!XG`NB3ad9#I@X@TNz!$W+WO<hmxtblu8<K61f<T;KDGW#"
        "$H|PcK`M=w>lPl4R0ce?oq~W9aeFB6z{dq&JE<rPr$TT2bmN5eFjgl6s)yr@v?nUkE7-HW=sbY3#)X@<emd`uho&nV"
        "`_g^A)mfxkKR(f+4R+w2x$$ZP?au!uOmiYy!IgHV9#Xe)wEO5^5BU8|pZ)m3?Sw%h{`j+`KAFLSC;9@@UZO@jVj;}|"
        "Yspg}oMdPYv)kZrvpOGtpkISPibu6vAO$LQvK9-f#Mwn$<3trkkWFx&m0HNR?9PBZp+^2eo9jY*@9W#!I|AirA-f?*"
        "uyapFnZP|JhQ&4xZ!;-8#X;>GBdAFwQQX`NOHq7Ha#^s<9GoUfAXH`eldBwaz)zu7yjDw11s;95C86;Tj^MSpC6IY)"
        "D-(Mh$(rp+t~|VRU_rPO88h^jzSR;Y@$Me52a4m6s0G}@9lj8j#zIM6napn?>lpUz9lXQ48y_)FSG!r%@AQQkH7C>?"
        "{UwYEDwJZfTPU-T0v6r<gZ2y9*}8>Wwz($=<Y<V$cPflVS|8g6N5cCnvgj|Ja-9VK1EK_w=l"
    )
)
# Name: number of the set's first byte, base, digits.
_PLACES = {
    "iq2_xxs": (0, 3, 8),
    "iq2_xs": (821, 3, 8),
    "iq2_s": (1642, 3, 8),
    "iq1": (2463, 3, 8),
    "iq3_xxs": (3284, 8, 4),
    "iq3_s": (3796, 8, 4),
}


@cache
def grid(name: str) -> np.ndarray:
    """u8 [points, 8 or 4]: the levels of each value, from 0, in the order of a file's indices."""
    start, base, digits = _PLACES[name]
    count = base**digits
    packed = np.frombuffer(_SETS, np.uint8, -(-count // 8), start)
    numbers = np.flatnonzero(np.unpackbits(packed, count=count))
    return (numbers[:, None] // base ** np.arange(digits) % base).astype(np.uint8)


@cache
def words(name: str) -> np.ndarray:
    """i16 [points]: the levels of a point side by side, 2 bits each of 8 values, 4 bits of 4."""
    points = grid(name).astype(np.uint32)
    width = 16 // points.shape[1]
    bits: np.ndarray = (points << width * np.arange(points.shape[1], dtype=np.uint32)).sum(axis=1)
    return bits.astype(np.uint16).view(np.int16)
