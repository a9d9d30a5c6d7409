//! Decimal digits with a point: the exact middle step between a quantity's text and its nano units.

/// A non-negative decimal number of any length: `digits` with the point after the first `point` of them.
pub(super) struct Digits {
    digits: Vec<u8>,
    point: usize,
}

/// The largest power of ten (of units) whose nano units fit into 128 bits.
const MAX_WHOLE_DIGITS: i64 = 29;
const NANO_DIGITS: i64 = 9;

impl Digits {
    /// Reads ASCII digits with at most one point; at least one digit is required.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let whole = whole.trim_start_matches('0');
        if !text.bytes().any(|b| b.is_ascii_digit()) || fraction.contains('.') {
            return None;
        }
        let digits = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        Some(Self { digits, point: whole.len() })
    }

    /// Multiplies by 2^`power`, exactly.
    pub(super) fn times_power_of_two(mut self, power: u32) -> Self {
        let mut carry: u128 = 0;
        for digit in self.digits.iter_mut().rev() {
            let product = (u128::from(*digit) << power) + carry;
            *digit = (product % 10) as u8;
            carry = product / 10;
        }
        let mut front = Vec::new();
        while carry > 0 {
            front.push((carry % 10) as u8);
            carry /= 10;
        }
        front.reverse();
        self.point += front.len();
        front.append(&mut self.digits);
        Self { digits: front, point: self.point }
    }

    /// The number times 10^`power` in nano units, fractions of one rounded up; `None` when it does not fit.
    pub(super) fn nanos(&self, power: i64) -> Option<i128> {
        let leading_zeros = self.digits.iter().take_while(|d| **d == 0).count();
        if leading_zeros == self.digits.len() {
            return Some(0);
        }
        let point = self.point as i64 + power;
        if point - leading_zeros as i64 > MAX_WHOLE_DIGITS {
            return None;
        }
        let kept = point + NANO_DIGITS;
        let mut nanos: i128 = 0;
        for position in leading_zeros as i64..kept {
            let digit = usize::try_from(position).ok().and_then(|p| self.digits.get(p)).copied().unwrap_or(0);
            nanos = nanos * 10 + i128::from(digit);
        }
        let dropped = usize::try_from(kept).unwrap_or(0).min(self.digits.len());
        let inexact = self.digits[dropped..].iter().any(|d| *d != 0);
        Some(nanos + i128::from(inexact))
    }
}
