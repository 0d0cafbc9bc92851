//! The MessagePack timestamp (ext -1) as RFC 3339 text.

/// 0001-01-01T00:00:00Z, in seconds since 1970.
const SECONDS_MIN: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z, in seconds since 1970.
const SECONDS_MAX: i64 = 253_402_300_799;
const NANOSECONDS_MAX: u32 = 999_999_999;
const DAY: i64 = 86_400;
/// Days of four hundred years, after which the calendar repeats.
const ERA: i64 = 146_097;
/// Days from the first of March of the year 0 to 1970.
const MARCH_OF_YEAR_0: i64 = 719_468;

/// The text of a timestamp's data, in UTC and with as many digits of fraction as it needs. `None` if the data
/// is malformed or its year is not one of 0001 to 9999.
pub(super) fn to_rfc3339(data: &[u8]) -> Option<String> {
    let (seconds, nanoseconds) = parts(data)?;
    if !(SECONDS_MIN..=SECONDS_MAX).contains(&seconds) || nanoseconds > NANOSECONDS_MAX {
        return None;
    }
    let (year, month, day) = date(seconds.div_euclid(DAY));
    let second = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if nanoseconds != 0 {
        let fraction = format!("{nanoseconds:09}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    text.push('Z');
    Some(text)
}

/// Seconds since 1970 and nanoseconds, from the data of the three lengths that exist.
fn parts(data: &[u8]) -> Option<(i64, u32)> {
    if let Ok(seconds) = data.try_into() {
        return Some((i64::from(u32::from_be_bytes(seconds)), 0));
    }
    if let Ok(packed) = data.try_into() {
        let packed = u64::from_be_bytes(packed);
        let seconds = i64::try_from(packed & ((1 << 34) - 1)).ok()?;
        return Some((seconds, u32::try_from(packed >> 34).ok()?));
    }
    let (nanoseconds, rest) = data.split_first_chunk()?;
    Some((i64::from_be_bytes(rest.try_into().ok()?), u32::from_be_bytes(*nanoseconds)))
}

/// Year, month and day of a day since 1970, in the Gregorian calendar. Years begin in March here, so that the
/// leap day is the last of its year.
const fn date(since_1970: i64) -> (i64, i64, i64) {
    let days = since_1970 + MARCH_OF_YEAR_0;
    let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Option<String> {
        let mut data = nanoseconds.to_be_bytes().to_vec();
        data.extend(seconds.to_be_bytes());
        to_rfc3339(&data)
    }

    #[test]
    fn a_timestamp_of_any_width_reads_as_its_date() {
        assert_eq!(to_rfc3339(&0_u32.to_be_bytes()).unwrap(), "1970-01-01T00:00:00Z");
        assert_eq!(to_rfc3339(&951_782_400_u32.to_be_bytes()).unwrap(), "2000-02-29T00:00:00Z");
        let packed = 500_000_000_u64 << 34 | 1_583_020_799;
        assert_eq!(to_rfc3339(&packed.to_be_bytes()).unwrap(), "2020-02-29T23:59:59.5Z");
        assert_eq!(at(-1, 1).unwrap(), "1969-12-31T23:59:59.000000001Z");
        assert_eq!(at(SECONDS_MIN, 0).unwrap(), "0001-01-01T00:00:00Z");
        assert_eq!(at(SECONDS_MAX, 0).unwrap(), "9999-12-31T23:59:59Z");
        assert_eq!(at(-2_203_891_200, 0).unwrap(), "1900-03-01T00:00:00Z");
    }

    #[test]
    fn what_rfc_3339_cannot_say_has_no_text() {
        assert_eq!(at(SECONDS_MIN - 1, 0), None);
        assert_eq!(at(SECONDS_MAX + 1, 0), None);
        assert_eq!(at(0, NANOSECONDS_MAX + 1), None);
        assert_eq!(to_rfc3339(&[0; 5]), None);
        assert_eq!(to_rfc3339(&[]), None);
    }
}
