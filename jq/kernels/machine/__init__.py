"""Instruction sets, their products and matrix tiles, and how work is cut for them."""

from jq.kernels.machine.isa import CHAINS, Isa
from jq.kernels.machine.tile_cut import ROWS, WORDS, TiledCut
from jq.kernels.machine.tiling import LINE, Tiling, row_block
