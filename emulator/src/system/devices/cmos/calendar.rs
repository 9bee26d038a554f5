//! Dates of the Gregorian calendar from and to seconds since 1970.

/// Days of 400 years: after these the calendar repeats.
const DAYS_PER_ERA: u64 = 146_097;
const YEARS_PER_ERA: u64 = 400;
/// Days from 1600, where an era starts, to 1970.
const DAYS_TO_1970: u64 = 135_140;
const FIRST_YEAR: u64 = 1600;
const SECONDS_PER_DAY: u64 = 86_400;
const MONTH_DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A date and a time of day. The month and the day count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

fn month_days(year: u64, month: u64) -> u64 {
    MONTH_DAYS[month as usize - 1] + u64::from(month == 2 && is_leap(year))
}

fn year_days(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

impl Date {
    pub(super) fn of_seconds(seconds: u64) -> Date {
        let days = seconds / SECONDS_PER_DAY + DAYS_TO_1970;

        let mut year = FIRST_YEAR + days / DAYS_PER_ERA * YEARS_PER_ERA;
        let mut rest = days % DAYS_PER_ERA;
        while rest >= year_days(year) {
            rest -= year_days(year);
            year += 1;
        }

        let mut month = 1;
        while rest >= month_days(year, month) {
            rest -= month_days(year, month);
            month += 1;
        }

        let second = seconds % SECONDS_PER_DAY;
        Date {
            year,
            month,
            day: rest + 1,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }

    /// Seconds since 1970. What is not a date is the nearest one that is; before 1970 it is 0.
    pub(super) fn seconds(&self) -> u64 {
        let year = self
            .year
            .clamp(FIRST_YEAR, FIRST_YEAR + 100 * YEARS_PER_ERA);
        let month = self.month.clamp(1, 12);
        let day = self.day.clamp(1, month_days(year, month));

        let eras = (year - FIRST_YEAR) / YEARS_PER_ERA;
        let era_start = FIRST_YEAR + eras * YEARS_PER_ERA;
        let days = eras * DAYS_PER_ERA
            + (era_start..year).map(year_days).sum::<u64>()
            + (1..month).map(|month| month_days(year, month)).sum::<u64>()
            + day
            - 1;

        let second = self.hour.min(23) * 3600 + self.minute.min(59) * 60 + self.second.min(59);
        (days * SECONDS_PER_DAY + second).saturating_sub(DAYS_TO_1970 * SECONDS_PER_DAY)
    }

    /// 1 is Sunday.
    pub(super) fn day_of_week(&self) -> u64 {
        let days = self.seconds() / SECONDS_PER_DAY;
        // The first of January 1970 was a Thursday.
        (days + 4) % 7 + 1
    }
}
