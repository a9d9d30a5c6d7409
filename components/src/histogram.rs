//! Counting values into histograms; what a histogram is of, and its bounds, is its owner's.

/// Counts a value in the bucket of the first bound that is not below it; above all bounds it is in none.
pub fn count_in(buckets: &mut [u64], bounds: &[f64], value: f64) {
    let bucket = bounds.iter().position(|bound| value <= *bound);
    if let Some(count) = bucket.and_then(|index| buckets.get_mut(index)) {
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_once_and_a_bound_is_part_of_its_bucket() {
        let mut buckets = [0; 2];
        for value in [0.5, 1.0, 1.5, 2.5] {
            count_in(&mut buckets, &[1.0, 2.0], value);
        }
        assert_eq!(buckets, [2, 1]);
    }
}
