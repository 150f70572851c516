"""What computes are written with.

`registry` finds what is known of an operator; `operands` is what a compute gets, `stages` what it makes. `rounding` and
`reciprocal` choose exact forms of right shifts and divisions for constants.
"""
