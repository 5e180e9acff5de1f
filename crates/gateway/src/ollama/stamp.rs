//! Instants as Ollama's clients read them.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// `2026-01-02T03:04:05.000000006Z`: so long after the beginning of 1970, in UTC.
pub fn rfc3339(since_1970: Duration) -> String {
    let seconds = since_1970.as_secs();
    let (year, month, day) = date_of(seconds / DAY);
    let of_day = seconds % DAY;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let nanos = since_1970.subsec_nanos();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// This instant.
pub(super) fn now() -> String {
    rfc3339(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The Gregorian date so many days after 1970-01-01. Years are counted from March, in spans of 400 years with 146,097 days
/// each (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00.000000007Z"),
            (951_782_399, "2000-02-28T23:59:59.000000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000000007Z"),
            (1_796_028_497, "2026-11-30T08:48:17.000000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000007Z"),
        ] {
            assert_eq!(rfc3339(Duration::new(seconds, 7)), want);
        }
    }
}
