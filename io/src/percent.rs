//! Percent encoding, of queries and of messages in headers. Reads only its arguments.

/// Undoes percent encoding. What is no encoding stays, and bytes that are no text are replaced.
pub(crate) fn decode(text: &[u8], plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' if plus_is_space => bytes.push(b' '),
            b'%' => match behind {
                [high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    bytes.push(hex(*high) << 4 | hex(*low));
                    rest = after;
                }
                _ => bytes.push(byte),
            },
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
