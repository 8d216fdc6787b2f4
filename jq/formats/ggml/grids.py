"""Grids of ggml's IQ types: the points that a group of 8 or 4 values can be.

A grid is a sorted set of points, each the digits of a number in base 3 (8 values) or 8 (4 values),
the first value lowest. A set is one bit for each number that there is, and all six together are
compressed. The sets are facts of the file format; the tests compare them with `gguf.quants`.
"""

from base64 import b85decode
from functools import cache
from zlib import decompress

import numpy as np

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
