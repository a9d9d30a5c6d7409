//! Walks the fields of a protobuf message without building it: no allocation, no copy, unknown fields jumped over.

use thiserror::Error;

/// Why bytes are not a protobuf message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum WireError {
    /// The bytes end in the middle of a field.
    #[error("the message is cut off")]
    CutOff,
    /// A number is longer than 64 bits, or a field has the number 0.
    #[error("the message has a broken field header")]
    BrokenHeader,
    /// A field has another wire type than its definition, or one that no longer exists.
    #[error("field {0} has the wrong wire type")]
    WrongType(u32),
    /// Text is not UTF-8.
    #[error("field {0} is not text")]
    NotText(u32),
}

/// A field's value as it lies on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed-width numbers, which CRI does not use in what we read.
    Fixed,
}

/// A field with its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) value: Value<'a>,
}

impl<'a> Field<'a> {
    /// The content of a length-delimited field.
    pub(super) fn bytes(self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::WrongType(self.number)),
        }
    }

    /// Text.
    pub(super) fn text(self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::NotText(self.number))
    }

    /// A number; enums are numbers, too.
    pub(super) fn number(self) -> Result<u64, WireError> {
        match self.value {
            Value::Number(number) => Ok(number),
            _ => Err(WireError::WrongType(self.number)),
        }
    }
}

/// The fields of one message in the order of the wire. Ends after the first error.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let header = self.varint()?;
        let number = u32::try_from(header >> 3).map_err(|_| WireError::BrokenHeader)?;
        if number == 0 {
            return Err(WireError::BrokenHeader);
        }
        let value = match header & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| WireError::CutOff)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(WireError::WrongType(number)),
        };
        Ok(Field { number, value })
    }

    fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            // The tenth byte holds the last bit.
            if index == 9 && byte > 1 {
                return Err(WireError::BrokenHeader);
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { WireError::CutOff } else { WireError::BrokenHeader })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(WireError::CutOff)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], expect: &str) {
        let text: Vec<String> = Fields::of(bytes)
            .map(|field| match field {
                Ok(Field { number, value: Value::Number(value) }) => format!("{number}={value}"),
                Ok(Field { number, value: Value::Bytes(value) }) => format!("{number}={}", value.escape_ascii()),
                Ok(Field { number, value: Value::Fixed }) => format!("{number} fixed"),
                Err(error) => error.to_string(),
            })
            .collect();
        assert_eq!(text.join(", "), expect, "{bytes:?}");
    }

    #[test]
    fn every_wire_type_is_walked_or_refused() {
        check(&[], "");
        check(&[0x08, 0x96, 0x01], "1=150");
        check(&[0x12, 2, b'h', b'i', 0x18, 1], "2=hi, 3=1");
        check(&[0x12, 0], "2=");
        check(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x15, 1, 2, 3, 4, 0x08, 7], "1 fixed, 2 fixed, 1=7");
        check(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "1=18446744073709551615");
        // Groups are gone from proto3.
        check(&[0x0b, 0x0c], "field 1 has the wrong wire type");
    }

    #[test]
    fn broken_bytes_end_the_walk_with_an_error() {
        check(&[0x08], "the message is cut off");
        check(&[0x08, 0x80], "the message is cut off");
        check(&[0x08, 1, 0x12, 200, 1, b'x'], "1=1, the message is cut off");
        check(&[0x12, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "the message is cut off");
        check(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], "the message has a broken field header");
        check(&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "the message has a broken field header");
        check(&[0x00, 1], "the message has a broken field header");
        check(&[0x09, 1, 2], "the message is cut off");
    }

    #[test]
    fn values_are_read_only_as_what_they_are() {
        let field = |value| Field { number: 4, value };
        assert_eq!(field(Value::Bytes(b"ab")).text(), Ok("ab"));
        assert_eq!(field(Value::Bytes(&[0xff])).text(), Err(WireError::NotText(4)));
        assert_eq!(field(Value::Number(1)).text(), Err(WireError::WrongType(4)));
        assert_eq!(field(Value::Bytes(b"ab")).number(), Err(WireError::WrongType(4)));
        assert_eq!(field(Value::Fixed).number(), Err(WireError::WrongType(4)));
    }
}
