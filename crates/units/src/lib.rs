//! Units of the link: rates, sizes, seeds.
