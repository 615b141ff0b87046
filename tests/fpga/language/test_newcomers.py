# ruff: noqa: E501
"""Texts that a newcomer writes: where the mistake is, what is wrong, and what to write instead."""

import pytest
from libraries import skip_without

skip_without("lark", reason="lark reads the language: pip install 'lightbed[fpga]'")

from fpga.count_action import CountActionError, parse_text

M = "module m { "
A = "inputs: { stream a of 8 bits; stream b of 8 bits } "
X = "inputs: { stream x of 2 lanes of 8 bits; number n of 4 bits; flag f[1 to 3] } "
W = "inputs: { stream x of 8 bits; number n of 4 bits } memory w: 16 of 8 bits; counts: { c: sum x.valid over cycles } targets: { 1 } "
CASES = [
    (M + "counts: { sum a.valid + b.valid by turn } targets: { 1 } }", 1, 47, "unexpected `turn`", "Write `by turns` or `by priority`."),
    (M + "counts: { sum a.valid + b.valid over cycles by turns } targets: { 1 } }", 1, 56, "unexpected `by`", "The order in a count is: terms, `by`, `over cycles`, `at most`, `to`,"),
    (M + "counts: { sum a.valid + b.valid by turns over cycles } targets: { 1 } }", 1, 44, "`by turns` in a count over cycles, which takes every beat at once (R7)", "Remove `over cycles`, and count the merged stream in a module"),
    (M + "counts: { sum a + b by turns } targets: { 1 } }", 1, 32, "`by turns` chooses among streams, but the sum has other terms", "Add valid bits only: sum a.valid + b.valid by turns."),
    (M + "counts: { sum a.valid by turns } targets: { 1 } }", 1, 34, "`by turns` of 1 streams; 2 to 16 are possible", "Name another stream, or remove `by turns`."),
    (M + "counts: { sum a.valid + a.valid by turns } targets: { 1 } }", 1, 44, "`a` appears twice in the sum", "Name each stream once."),
    (M + "counts: { sum a.valid + b.valid by turns } targets: { 2 } }", 1, 66, "target `target` of count `count` is 2, and the sum is at most 1: it is", "Lower the target, or write `over cycles`."),
    (M + "counts: { sum a.valid + b.valid } targets: { 2 } actions: { merge as y } }", 1, 72, "`merge` sends the selected beat, but count `count` takes all of its", "Write `by turns` or `by priority` in the count."),
    (M + "counts: { sum a.valid + b.valid by priority } targets: { 1 } actions: { merge a, b as y } }", 1, 90, "unexpected `a`", "`merge` sends the beat that its count selects: name no stream, and"),
    (M + A + "counts: { sum a.valid + b.valid by turns until last } targets: { 1 } actions: { merge as y } }", 1, 77, "the beats of `a` have no `last`", "Declare it: stream a of 4 lanes of 8 bits with last and keep."),
    (M + A + "counts: { sum a.valid + b.valid by turns } targets: { 1 } actions: { merge with last as y } }", 1, 77, "the beats of `a` have no `last`", "Declare it: stream a of 4 lanes of 8 bits with last and keep."),
    (M + A + "counts: { sum a.valid + b.valid by turns } targets: { 1 } actions: { merge with keep as y } }", 1, 143, "unexpected `keep`", "Write `until last`, `with last` or `with last and keep`."),
    (M + "inputs: { stream a of 2 lanes of 8 bits; stream b of 8 bits } counts: { sum a.valid + b.valid by turns } targets: { 1 } actions: { merge as y } }", 1, 98, "`b` has 1 lanes and `a` has 2", "Merge streams with the same number of lanes."),
    (M + "inputs: { flag f buffered } counts: { sum f } targets: { 1 } }", 1, 29, "unexpected `buffered`", "Write it last, for an external stream: stream NAME of 8 bits buffered."),
    (M + "inputs: { buffered stream x of 8 bits } counts: { sum x.valid } targets: { 1 } }", 1, 22, "unexpected `buffered`", "Write it last, for an external stream: stream NAME of 8 bits buffered."),
    (M + "counts: { c: sum x over cycles } targets: { 3 } always { d < 3 } }", 1, 69, "a property reads `d`, which nothing else uses", "There are: x, c."),
    (M + "counts: { c: sum x over cycles } targets: { 3 } assert { c < 3 } }", 1, 60, "unexpected `assert`", "A module has the sections `inputs: {...}`, `counts: {...}`, `targets:"),
    (M + "counts: { c: sum x over cycles } targets: { 3 } always { p: c < 3; p: c < 4 } }", 1, 79, "`p` is a property here and a property elsewhere (t.ca:1:69)", "Rename one of them."),
    (M + "counts: { c: sum x over cycles } targets: { 3 } always { c => 3 } }", 1, 71, "unexpected `=`", "Compare with `==`, `!=`, `<`, `<=`, `>` or `>=`."),
    (M + "inputs: { number n of 40 bits } counts: { sum n } targets: { 1 } }", 1, 29, "the width of `n` is 40, outside 1 to 32", "Choose 1 to 32."),
    (M + "counts: { sum x while a && b } targets: { 1 } }", 1, 36, "unexpected character `&`", "Write `and`, `or` and `not`."),
    (M + "counts: { sum x while !a } targets: { 1 } }", 1, 34, "unexpected character `!`", "Write `and`, `or` and `not`."),
    (M + "counts: { sum x while a = 1 } targets: { 1 } }", 1, 36, "unexpected `=`", "Compare with `==`, `!=`, `<`, `<=`, `>` or `>=`."),
    (M + "counts: { sum x == 3 } targets: { 1 } }", 1, 28, "unexpected `==`", "A count has no comparison: write its target in `targets`, and its"),
    (M + "counts: { sum x } targets: { >= 3 } }", 1, 41, "unexpected `>=`", "Write it before the number: `at least 3`, `NAME: at least 3`,"),
    (M + "counts: { sum x } targets: { n at least 3 } }", 1, 43, "unexpected `at least`", "Write it before the number: `at least 3`, `NAME: at least 3`,"),
    (M + "counts: { x } targets: { 1 } }", 1, 24, "unexpected `}`", "A count begins with `sum`: `sum x.valid`, or `LABEL: sum x.valid`."),
    (M + "counts: { sum x.last } targets: { 1 } }", 1, 26, "the beats of `x` have no `last`", "Declare it: stream x of 4 lanes of 8 bits with last and keep."),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { stream x.data * 2 } }", 1, 76, "unexpected `*`", "Signals cannot be multiplied or divided: compute the product outside,"),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { stream relu(x.data) } }", 1, 69, "`relu` is not a function of the language", "Write `max(x, 0)`."),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { send x.data } }", 1, 62, "unexpected `send`", "An action is `stream`, `merge`, `emit`, `store`, `pulse`, `set`,"),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { emit x.data } }", 1, 67, "unexpected `x`", "Write `emit sum x.data`, or `stream x.data` for the samples themselves."),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { stream x } }", 1, 69, "`x` is a stream, and this position needs its samples", "Write x.data."),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { out = x.data } }", 1, 62, "unexpected `out`", "An action is `stream`, `merge`, `emit`, `store`, `pulse`, `set`,"),
    (M + "counts: { sum x.valid } targets: { 1 } actions: { if x.data > 3 pulse p } }", 1, 62, "unexpected `if`", "An action is `stream`, `merge`, `emit`, `store`, `pulse`, `set`,"),
    (M + "counts: { sum DAC[1:4].valid } targets: { 1 } }", 1, 31, "unexpected `:`", "Write the range after the name: `NAME[i].valid (i = 1 to 4)`."),
    (M + "counts: { sum DAC[i].valid (i in 1 to 4) } targets: { 1 } }", 1, 42, "unexpected `in`", "Write `(i = 1 to 4)`."),
    (M + "counts: { sum DAC[i].valid for i = 1 to 4 } targets: { 1 } }", 1, 39, "unexpected `for`", "Write the range in brackets after it: `x[i] (i = 1 to 4)`."),
    (M + "counts: { sum x over cycle } targets: { 1 } }", 1, 33, "unexpected `cycle`", "Write `over cycles`."),
    (M + "counts: { sum x } targets: { 1 } actions: { store x.data } }", 1, 69, "unexpected `}`", "Give it a name: `store x.data as NAME`."),
    (M + "inputs: { stream x of 8 bit } counts: { sum x.valid } targets: { 1 } }", 1, 36, "unexpected `bit`", "Write `bits` after a width: `stream NAME of 8 bits`."),
    (M + "inputs: { stream x: 8 bits } counts: { sum x.valid } targets: { 1 } }", 1, 30, "unexpected `:`", "Write `of` and a width: `stream NAME of 8 bits`."),
    (M + "inputs: { input x } counts: { sum x.valid } targets: { 1 } }", 1, 22, "unexpected `input`", "An input is `stream NAME of 8 bits`, `flag NAME` or `number NAME"),
    (M + "counts: { sum x }, targets: { 1 } }", 1, 29, "unexpected `,`", "A module has the sections `inputs: {...}`, `counts: {...}`, `targets:"),
    ("# comment\nmodule m { counts: { sum x } targets: { 1 } }", 1, 1, "unexpected character `#`", "A comment begins with `//` and ends with its line."),
    ("/* c */ module m { counts: { sum x } targets: { 1 } }", 1, 1, "unexpected `/`", "A comment begins with `//` and ends with its line."),
    (M + "counts: { sum x while (a } targets: { 1 } }", 1, 37, "unexpected `}`", "Close the bracket: `)`."),
    (M + "counts: { sum x } targets: { 1.5 } }", 1, 42, "unexpected `.`", "Numbers are whole."),
    (M + "counts: { sum x } targets: { 1 } actions: { pulse } }", 1, 62, "unexpected `}`", "Write a name: letters, digits and underscores. Omit empty brackets."),
    (M + "counts: { sum x to } targets: { 1 } }", 1, 31, "unexpected `}`", "Name a target, or write a formula in brackets."),
    (M + "counts: { sum x width 8 while a } targets: { 1 } }", 1, 36, "unexpected `while`", "The order in a count is: terms, `by`, `over cycles`, `at most`, `to`,"),
    (M + "tables: { t: 1, 2 } counts: { sum x to t[0] } targets: { 1 } }", 1, 23, "unexpected `:`", "A table has a range: `NAME[0 to 7]: 1, 2, ...`."),
    ("import a.ca; module m { counts: { sum x } targets: { 1 } }", 1, 8, "unexpected `a`", 'Write the name of the file in quotation marks: import "a.ca";'),
    ("use m; module m { counts: { sum x } targets: { 1 } }", 1, 6, "unexpected `;`", "Give the instance a name: `use MODULE as NAME;`."),
    ("module m() { counts: { sum x } targets: { 1 } }", 1, 10, "unexpected `)`", "Write a name: letters, digits and underscores. Omit empty brackets."),
    (M + "counts: { sum x } targets: { -3 } }", 1, 41, "a target of -3 is never reached (R3)", "Write `never` if that is intended."),
    # names that are targets, elements of single values, samples in place of conditions
    (M + "counts: { sum x while t0 } targets: { t0: 3 } }", 1, 34, "`t0` is a target, and a target alone is neither a condition nor a sample", "Write `t0 != 0` or `max(t0, 0)`; for an input of that name, declare `flag t0`."),
    (M + "counts: { sum t0 over cycles } targets: { t0: 3 } }", 1, 26, "`t0` is a target, and a target alone is neither a condition nor a sample", "Write `t0 != 0` or `max(t0, 0)`; for an input of that name, declare `flag t0`."),
    (M + "counts: { sum x while not t0 } targets: { t0: 3 } }", 1, 38, "`t0` is a target, and a target alone is neither a condition nor a sample", "Write `t0 != 0` or `max(t0, 0)`; for an input of that name, declare `flag t0`."),
    (M + "counts: { sum x } targets: { t0: 1 } actions: { store t0 as y } }", 1, 66, "`t0` is a target, and a target alone is neither a condition nor a sample", "Write `t0 != 0` or `max(t0, 0)`; for an input of that name, declare `flag t0`."),
    (M + "counts: { sum x while t0[1] } targets: { t0: 1 } }", 1, 34, "`t0` is one value of `m` and has no element 1", "Write `t0 != 0` or `max(t0, 0)`; for an input of that name, declare `flag t0`."),
    (M + "counts: { c: sum x over cycles while c[0] } targets: { 3 } }", 1, 49, "`c` is one value of `m` and has no element 0", "Write c."),
    (M + "counts: { sum x while layer[1] } targets: { 1 } actions: { advance layer modulo 3 } }", 1, 34, "`layer` is one value of `m` and has no element 1", "Write layer."),
    (M + X + "counts: { sum n[1] over cycles } targets: { at least 3 } }", 1, 104, "`n` is one number of 4 bits and has no element 1", "For a bit write n[1:1] in a formula; for several numbers declare n[1 to 4] of"),
    (M + X + "counts: { sum n[0] over cycles } targets: { at least 3 } }", 1, 104, "`n` is one number of 4 bits and has no element 0", "For a bit write n[0:0] in a formula; for several numbers declare n[1 to 4] of"),
    (M + X + "counts: { sum x.valid over cycles while n[3] == 1 } targets: { 3 } }", 1, 130, "`n` is one number of 4 bits and has no element 3", "For a bit write n[3:3] in a formula; for several numbers declare n[1 to 4] of"),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] } targets: { 3 } }", 1, 130, "`x.data[1]` is a sample, and a condition needs a comparison", "Write `x.data[1] != 0`, or x.valid for whether there is a beat."),
    (M + X + "counts: { sum x.valid over cycles while not x.data[2] } targets: { 3 } }", 1, 134, "`x.data[2]` is a sample, and a condition needs a comparison", "Write `x.data[2] != 0`, or x.valid for whether there is a beat."),
    (M + X + "counts: { sum x.valid over cycles while x.data } targets: { 3 } }", 1, 130, "`x.data` is a sample, and a condition needs a comparison", "Write `x.data != 0`, or x.valid for whether there is a beat."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { stream x.valid } }", 1, 159, "`x.valid` says whether there is a beat, and this position needs samples", "Write x.data for the samples, or `x.valid == 1` for the bit."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { store x.valid as y } }", 1, 158, "`x.valid` says whether there is a beat, and this position needs samples", "Write x.data for the samples, or `x.valid == 1` for the bit."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { stream x.data last x.data } }", 1, 171, "`x.data` has 2 lanes, and no index says which one", "Write x.data[1] for a lane, x.data[1][7:0] for its bits, or a range."),
    (M + X + "counts: { sum x.valid over cycles while f } targets: { 3 } }", 1, 130, "`f` has elements 1 to 3, and no index says which one", "Write f[1], or f[i] (i = 1 to 3)."),
    (M + "inputs: { stream DAC[1 to 4] of 8 bits } counts: { sum DAC.valid } targets: { 4 } }", 1, 67, "`DAC` has elements 1 to 4, and no index says which one", "Write DAC[1].valid, or DAC[i].valid (i = 1 to 4)."),
    (M + "inputs: { stream DAC[1 to 4] of 8 bits } counts: { sum DAC[i].valid (i = 1 to 4) } targets: { 4 } actions: { stream DAC.data } }", 1, 128, "`DAC` has elements 1 to 4, and no index says which one", "Write DAC[1].data, or DAC[i].data (i = 1 to 4)."),
    (M + X + "counts: { sum x.data over cycles } targets: { 3 } }", 1, 104, "`x` is a stream, and `sum` counts its beats", "Write x.valid."),
    # bits, shifts, concatenation, hexadecimal constants
    (M + "counts: { sum x.valid } targets: { 1 } actions: { stream x.data <<< 2 } }", 1, 78, "unexpected `<`; expected a number, `(` or a name", "Write `<<` or `>>` and a number of bits: x.data >> 2."),
    (M + X + "counts: { sum x[7:0] over cycles } targets: { 3 } }", 1, 107, "unexpected `:`; expected `]`", "Write the range after the name: `NAME[i].valid (i = 1 to 4)`. Bits, `NAME[7:0]`, are "),
    (M + X + "counts: { sum x.valid over cycles while x[7:0] == 3 } targets: { 3 } }", 1, 130, "`x` is a stream, and only its samples have bits", "Write x.data[7:0]."),
    (M + X + "counts: { sum x.valid over cycles while x.data[7:0] == 3 } targets: { 3 } }", 1, 130, "`x.data` has 2 lanes, and no index says which one", "Write x.data[1] for a lane, x.data[1][7:0] for its bits, or a range."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1][0:7] == 3 } targets: { 3 } }", 1, 140, "the slice [0:7] begins at its lowest bit", "Write the highest bit first: [7:0]."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1][8:1] == 3 } targets: { 3 } }", 1, 130, "the slice has bit 8, and its value has bits 7 to 0", "The highest bit is [7:7]."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1][7:0].last } targets: { 3 } }", 1, 144, "unexpected `.`; expected `and`, `[`, a shift, `or`, `}`, a comparison, `;` or `width`", "Bits come last: `x.data[1][7:0]`."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1][n:0] == 3 } targets: { 3 } }", 1, 140, "the bits of a slice are not constant", "Select among slices: `table(n, x[3:0], x[7:4])`."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1][7-0] == 3 } targets: { 3 } }", 1, 143, "unexpected `]`; expected `:`", "Write bits with a colon: `[3:3]` is bit 3."),
    (M + X + "counts: { sum n[3:1] over cycles } targets: { at least 3 } }", 1, 107, "unexpected `:`; expected `]`", "Write the range after the name: `NAME[i].valid (i = 1 to 4)`. Bits, `NAME[7:0]`, are "),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] >> n == 1 } targets: { 3 } }", 1, 143, "the number of bits of a shift is not constant", "Write `table(n, x, x << 1, x << 2)`."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] << 61 == 1 } targets: { 3 } }", 1, 143, "a shift by 61 is outside 0 to 60", "Shift by 0 to 60; for less than 0 use `>>`."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] << -1 == 1 } targets: { 3 } }", 1, 143, "a shift by -1 is outside 0 to 60", "Shift by 0 to 60; for less than 0 use `>>`."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] << 55 == 1 } targets: { 3 } }", 1, 130, "this formula ranges from 0 to 9187343239835811840; at most 60 bits and a sign are pos", "Add, shift or join less, or narrower samples."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] > 8'hFF } targets: { 3 } }", 1, 143, "unexpected character `'`", "Write constants as 255 or 0xFF, without a width."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] == 0xFG } targets: { 3 } }", 1, 143, "unexpected character `0`", "Numbers are decimal or hexadecimal (0xFF), or made of parameters, index names, + - * "),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] == 0b11 } targets: { 3 } }", 1, 143, "unexpected character `0`", "Numbers are decimal or hexadecimal (0xFF), or made of parameters, index names, + - * "),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] == 0xFFFFFFFFFFFFF } targets: { 3 } }", 1, 143, "this number has 13 digits, which is too large", "The largest count is 2^48 - 1 = 281474976710655."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1] & 0xF } targets: { 3 } }", 1, 140, "unexpected character `&`", "Write `and`, `or` and `not`. Select bits with `NAME[7:0]`."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { stream {x.data[1], n} } }", 1, 159, "unexpected `{`; expected a number, `(`, a name or `not`", "Write `concat(a, b)`, the highest bits first."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { stream concat(0, n) } }", 1, 159, "a constant in `concat` has no width", "Say how many bits it has, here 8: `(0)[7:0]`."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { stream concat() } }", 1, 166, "unexpected `)`; expected a number, `(`, a name or `not`", "Write a value between the brackets."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { stream cat(n, n) } }", 1, 159, "`cat` is not a function of the language", "Use `max(a, b, ...)`, `min(a, b, ...)`, `concat(a, b, ...)` or `table(index, first, s"),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { store concat(x.data, x.data, x.data, x.data) as y } }", 1, 152, "the width of number `y` is 64, outside 1 to 48", "Choose 1 to 48."),
    (M + X + "counts: { sum x.valid over cycles } targets: { 3 } actions: { emit sum x.data[1] >> 2 } }", 1, 171, "unexpected `>>`; expected `as`, `.`, `(`, `}`, `;`, `shift`, `signed`, `unsigned` or ", "Put a shift in brackets: `emit sum (x.data >> 2)`; `emit sum x.data shift 2` shifts t"),
    (M + X + "counts: { sum x.valid over cycles while n[3:0] } targets: { 3 } actions: { stream n[4:4] } }", 1, 172, "the slice has bit 4, and its value has bits 3 to 0", "The highest bit is [3:3]."),
    (M + X + "counts: { sum x.valid over cycles while x.data[1][3] == 1 } targets: { 3 } }", 1, 141, "unexpected `]`; expected `:`", "Write bits with a colon: `[3:3]` is bit 3."),
    (M + "counts: { sum x >> 1 } targets: { 1 } }", 1, 28, "unexpected `>>`; expected `at most`, `by`, `(`, `over`, `}`, `;`, `to`, `while` or `w", "Put a shift in brackets: `emit sum (x.data >> 2)`; `emit sum x.data shift 2` shifts t"),
    # several stores of a number
    (M + "counts: { a: sum p; b: sum q } targets: { 1 } actions: { on a: store 1 as k; on b: store 0 as k } }", 1, 75, "number `k` has 2 stores, first at t.ca:1:75, and this one does not say which wins", "Write `by priority` after each: the first in the text wins. Or rename one."),
    (M + "counts: { a: sum p; b: sum q } targets: { 1 } actions: { on a: store 1 as k by priority; on b: store 0 as k } }", 1, 107, "number `k` has 2 stores, first at t.ca:1:75, and this one does not say which wins", "Write `by priority` after each: the first in the text wins. Or rename one."),
    (M + "counts: { a: sum p; b: sum q } targets: { 1 } actions: { on a: store 9 as k by priority; on b: store 0 as k by priority } }", 1, 107, "number `k` has 1 bits here and 4 bits in its first store", "Write `width 4` in each."),
    (M + "counts: { a: sum p; b: sum q } targets: { 1 } actions: { on a: store 1 as k by turns; on b: store 0 as k by turns } }", 1, 91, "unexpected `turns`; expected `priority`", "Write `by priority`: of stores that fire together, the first in the text wins."),
    (M + "counts: { a: sum p; b: sum q } targets: { 1 } actions: { on a: store 1 as k by priority; on b: set k } }", 1, 107, "output `k` of module `m` has two drivers, the other one at t.ca:1:75 (R9)", "Give this one another name: `k_2`."),
    # memories
    (M + "memory w: 256 x 16; counts: { sum x } targets: { 1 } }", 1, 26, "unexpected `x`; expected `of`", "Write the number of words and their width: `memory NAME: 256 of 16 bits`."),
    (M + "memory w[256] of 16 bits; counts: { sum x } targets: { 1 } }", 1, 26, "unexpected `of`; expected `:`", "Write the number of words and their width: `memory NAME: 256 of 16 bits`."),
    (M + "memory w of 256 words; counts: { sum x } targets: { 1 } }", 1, 21, "unexpected `of`; expected `:` or `[`", "Write the number of words and their width: `memory NAME: 256 of 16 bits`."),
    (M + "memory: { w: 256 of 16 bits } counts: { sum x } targets: { 1 } }", 1, 18, "unexpected `:`; expected a name", "Write the number of words and their width: `memory NAME: 256 of 16 bits`."),
    (M + "memory w: 1 of 8 bits; counts: { sum x } targets: { 1 } }", 1, 12, "memory `w` has 1 words of 8 bits", "2 to 65536 words of 1 to 48 bits are possible."),
    (M + "memory w: 100000 of 8 bits; counts: { sum x } targets: { 1 } }", 1, 12, "memory `w` has 100000 words of 8 bits", "2 to 65536 words of 1 to 48 bits are possible."),
    (M + "memory w: 16 of 64 bits; counts: { sum x } targets: { 1 } }", 1, 12, "memory `w` has 16 words of 64 bits", "2 to 65536 words of 1 to 48 bits are possible."),
    (M + W + "actions: { stream w[x.data] } }", 1, 159, "`w` is a memory, and a formula cannot read it", "Read the word one cycle before, `read w[ADDRESS] as NAME`, and write NAME."),
    (M + W + "actions: { store w[n] + 1 in w[n] } }", 1, 158, "`w` is a memory, and a formula cannot read it", "Read the word one cycle before, `read w[ADDRESS] as NAME`, and write NAME."),
    (M + W + "actions: { store w as y } }", 1, 158, "`w` is a memory, and a formula cannot read it", "Read the word one cycle before, `read w[ADDRESS] as NAME`, and write NAME."),
    (M + W + "actions: { read w as y } }", 1, 159, "unexpected `as`; expected `[`", "Write an address after the memory: `MEMORY[ADDRESS]`."),
    (M + W + "actions: { read w[n] } }", 1, 162, "unexpected `}`; expected `as`", "Give it a name: `read MEMORY[ADDRESS] as NAME`."),
    (M + W + "actions: { read v[n] as y } }", 1, 152, "there is no memory `v` in this module", "There are: w."),
    (M + W + "actions: { store x.data in w } }", 1, 170, "unexpected `}`; expected `[`", "Write an address after the memory: `MEMORY[ADDRESS]`."),
    (M + W + "actions: { store x.data as w[n] } }", 1, 168, "`w` is a memory, and `as` names a number", "Write `in w[ADDRESS]`."),
    (M + W + "actions: { on c: read w[n] as y; on c: read w[n + 1] as z } }", 1, 180, "memory `w` has two reads, and one word can be read per cycle; the first is at t.ca:1:158", "Select the address in one read, `read w[a if first else b] as NAME`, or declare a second memory."),
    (M + W + "actions: { on c: store 1 in w[n]; on c: store 2 in w[x.data] } }", 1, 158, "memory `w` has 2 stores, and this one does not say which wins", "Write `by priority` after each: the first in the text wins. Or declare a second memory."),
    (M + W + "actions: { } }", 1, 63, "memory `w` is neither stored nor read", "Write `read w[ADDRESS] as NAME`, or remove it."),
    (M + W + "actions: { store x.data width 4 in w[n] } }", 1, 173, "unexpected `in`; expected `as`", "A word has the width of its memory: remove `width`."),
    (M + W + "actions: { on c: read w[n] as y; on c: set w } }", 1, 180, "output `w` of module `m` has two drivers, the other one at t.ca:1:63 (R9)", "Give this one another name: `w_2`."),
    (M + "memory w: 4 of 8 bits; memory w: 4 of 8 bits; counts: { sum x } targets: { 1 } actions: { read w[1] as y } }", 1, 35, "memory `w` is declared twice, first at t.ca:1:12", "Remove one."),
    (M + W + "actions: { read w[n] as y } } module o { counts: { sum k while m.w == 3 } targets: { 1 } }", 1, 204, "`m.w` is a memory, which only its module reads", "Write `read w[ADDRESS] as NAME` there, and m.NAME here."),
    (M + W + "actions: { read w[n] as y } } module o { counts: { sum k } targets: { 1 } actions: { store k in w[0] } }", 1, 226, "there is no memory `w` in this module", "Declare it in the module: `memory NAME: 256 of 16 bits`."),
    (M + W + "actions: { read w[n] as y } } module o { counts: { sum k } targets: { 1 } actions: { read m.w[0] as z } }", 1, 232, "unexpected `.`; expected `[`", "Only its module reads and stores in a memory: write `read` there, and MODULE.NAME for the number."),
    (M + "memory w: N of 8 bits; counts: { sum x } targets: { 1 } actions: { store N in w[0] } }", 1, 22, "`N` is not a number that is known here", "Declare it: module NAME (N = 16)."),
    (M + W + "actions: { write x.data in w[n] } }", 1, 152, "unexpected `write`; expected `advance`, `clear`, `emit`, `for`, `merge`, `on`, `pulse`, `}`, `read`, `set`, `store` or `stream`", "An action is `stream`, `merge`, `emit`, `store`, `pulse`, `set`, `clear`, `advance` or `read`; its condition belongs in its count: `on COUNT: pulse done`."),
    (M + W + "actions: { on c: read w[n] as y; on c: store y in w } }", 1, 193, "unexpected `}`; expected `[`", "Write an address after the memory: `MEMORY[ADDRESS]`."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "message", "hint"), CASES, ids=range(len(CASES)))
def test_the_place_the_mistake_and_what_to_write_instead(text, line, column, message, hint):
    with pytest.raises(CountActionError) as caught:
        parse_text(text, "t.ca")
    first = caught.value.errors[0]
    assert first.message.startswith(message)
    assert first.hint.startswith(hint)
    assert (first.line, first.column) == (line, column)


def test_there_are_forty_and_no_hint_points_at_the_grammar_alone():
    assert len(CASES) >= 40
    assert [hint for *_, hint in CASES if hint.startswith("See the grammar")] == []
