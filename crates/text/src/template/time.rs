//! `strftime_now` of templates that print the date.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The time now in UTC by a format of C. Servers run in UTC, and the zone of the machine cannot be
/// known without unsafe code.
pub(super) fn strftime_now(format: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    strftime(now, format)
}

fn strftime(unix_s: u64, format: &str) -> String {
    let (days, second_of_day) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) =
        (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    let weekday = usize::try_from((days + 4) % 7).unwrap_or(0);
    let hour12 = (hour + 11) % 12 + 1;
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut spec = chars.next();
        // `%-d` is GNU's way of saying: no padding.
        let bare = spec == Some('-');
        if bare {
            spec = chars.next();
        }
        let two = |n: u64| if bare { n.to_string() } else { format!("{n:02}") };
        match spec {
            Some('Y') => text.push_str(&year.to_string()),
            Some('y') => text.push_str(&two(year % 100)),
            Some('m') => text.push_str(&two(month)),
            Some('d') => text.push_str(&two(day)),
            Some('e') => text.push_str(&format!("{day:2}")),
            Some('H') => text.push_str(&two(hour)),
            Some('I') => text.push_str(&two(hour12)),
            Some('M') => text.push_str(&two(minute)),
            Some('S') => text.push_str(&two(second)),
            Some('p') => text.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('A') => text.push_str(DAYS[weekday]),
            Some('a') => text.push_str(&DAYS[weekday][..3]),
            Some('B') => text.push_str(month_name(month)),
            Some('b' | 'h') => text.push_str(&month_name(month)[..3]),
            Some('j') => {
                let day_of_year = days - days_before(year) + 1;
                text.push_str(&if bare {
                    day_of_year.to_string()
                } else {
                    format!("{day_of_year:03}")
                });
            }
            Some('F') => text.push_str(&format!("{year}-{month:02}-{day:02}")),
            Some('T') => text.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
            Some('D') => text.push_str(&format!("{month:02}/{day:02}/{:02}", year % 100)),
            Some('R') => text.push_str(&format!("{hour:02}:{minute:02}")),
            Some('s') => text.push_str(&unix_s.to_string()),
            Some('Z') => text.push_str("UTC"),
            Some('z') => text.push_str("+0000"),
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('%') | None => text.push('%'),
            Some(other) => text.extend(['%', other]),
        }
    }
    text
}

fn month_name(month: u64) -> &'static str {
    usize::try_from(month).ok().and_then(|m| MONTHS.get(m.wrapping_sub(1))).copied().unwrap_or("")
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

/// Days from 1970 to the first of January of a year from 1970 on.
fn days_before(year: u64) -> u64 {
    let leap_days = |y: u64| y / 4 - y / 100 + y / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

/// Year, month and day of a day since 1970.
fn civil(days: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    let mut rest = days - days_before(year);
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let check = |unix_s, expected: &str| {
            assert_eq!(strftime(unix_s, "%A %d %B %Y %H:%M:%S %j"), expected);
        };
        check(0, "Thursday 01 January 1970 00:00:00 001");
        check(951_782_399, "Monday 28 February 2000 23:59:59 059");
        check(951_782_400, "Tuesday 29 February 2000 00:00:00 060");
        check(1_735_689_599, "Tuesday 31 December 2024 23:59:59 366");
        check(1_772_323_200, "Sunday 01 March 2026 00:00:00 060");
        assert_eq!(strftime(0, "%-d/%-m %I %p %%"), "1/1 12 AM %");
    }
}
