//! Text of a file's bytes, which TOML has in UTF-8 alone.

/// Text in `bytes`, without the mark that some editors begin a file with; the line of the first byte that is none, from 1,
/// and what is wrong there.
pub(crate) fn of(bytes: Vec<u8>) -> Result<String, (usize, String)> {
    const MEND: &str = "save the file as UTF-8";
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err((1, format!("this file is UTF-16, not UTF-8; {MEND}")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let sound = error.utf8_error().valid_up_to();
        let bytes = error.into_bytes();
        let line = bytes[..sound].iter().filter(|byte| **byte == b'\n').count() + 1;
        let byte = bytes[sound];
        (
            line,
            format!("the byte 0x{byte:02x} in this line is no UTF-8; {MEND}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn text_of_another_encoding_is_named_with_its_line() {
        let fault = |bytes: &[u8]| of(bytes.to_vec()).expect_err("no UTF-8");
        let latin = fault(b"a = 1\n# stra\xdfe\nb = 2\n");
        let said = "the byte 0xdf in this line is no UTF-8; save the file as UTF-8";
        assert_eq!(latin, (2, said.to_owned()));
        for wide in [b"\xff\xfea\0".as_slice(), b"\xfe\xff\0a"] {
            let (line, said) = fault(wide);
            assert!(line == 1 && said.contains("is UTF-16"), "{said}");
        }
        assert_eq!(of(b"a = 1\n".to_vec()).as_deref(), Ok("a = 1\n"));
    }
}
