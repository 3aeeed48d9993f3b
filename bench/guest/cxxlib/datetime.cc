#include "numbers.h"
#include <array>
#include <iomanip>
#include <ratio>
#include <sstream>
#include <tuple>

namespace toolbox
{

namespace
{

using Days = std::chrono::duration<std::int64_t, std::ratio<86400>>;

constexpr bool leap(std::int64_t year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

constexpr std::array<int, 12> month_days{ 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

constexpr int days_in_month(std::int64_t year, int month)
{
	return month_days[std::size_t(month - 1)] + (month == 2 && leap(year));
}

// The days from 1970-01-01 to the first day of a year from 1 on.
constexpr std::int64_t days_to_year(std::int64_t year)
{
	auto past = year - 1;
	return past * 365 + past / 4 - past / 100 + past / 400 - 719162;
}
static_assert(days_to_year(1970) == 0 && days_to_year(2001) == 11323);

std::tuple<std::int64_t, int, int> civil(Days days)
{
	std::int64_t year = days.count() / 366 + 1970;
	while (days_to_year(year + 1) <= days.count())
		year++;
	while (days_to_year(year) > days.count())
		year--;
	int rest = int(days.count() - days_to_year(year)), month = 1;
	for (; rest >= days_in_month(year, month); month++)
		rest -= days_in_month(year, month);
	return { year, month, rest + 1 };
}

Days floor_days(Time time)
{
	return std::chrono::floor<Days>(time.time_since_epoch());
}

} // namespace

std::string format_time(Time time)
{
	using namespace std::chrono;
	auto days = floor_days(time);
	auto [year, month, day] = civil(days);
	auto rest = time.time_since_epoch() - days;
	auto h = duration_cast<hours>(rest);
	auto m = duration_cast<minutes>(rest - h);
	auto s = duration_cast<seconds>(rest - h - m);
	std::ostringstream out;
	out << std::setfill('0') << std::setw(4) << year << '-' << std::setw(2) << month << '-'
	    << std::setw(2) << day << 'T' << std::setw(2) << h.count() << ':' << std::setw(2)
	    << m.count() << ':' << std::setw(2) << s.count() << 'Z';
	return out.str();
}

std::optional<Time> parse_time(const std::string &text)
{
	using namespace std::chrono;
	std::istringstream in(text);
	int year, month, day, h, m, s;
	std::array<char, 6> marks{};
	in >> year >> marks[0] >> month >> marks[1] >> day >> marks[2] >> h >> marks[3] >> m >>
		marks[4] >> s >> marks[5];
	if (!in || std::string(marks.begin(), marks.end()) != "--T::Z" || in.peek() != EOF)
		return std::nullopt;
	if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_in_month(year, month) ||
	    h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 59)
		return std::nullopt;
	Days days(days_to_year(year) + day - 1);
	for (int before = 1; before < month; before++)
		days += Days(days_in_month(year, before));
	return Time(days + hours(h) + minutes(m) + seconds(s));
}

std::string describe(std::chrono::milliseconds duration)
{
	using namespace std::chrono;
	std::ostringstream out;
	auto part = [&](auto unit, const char *name) {
		auto whole = duration_cast<decltype(unit)>(duration);
		if (whole.count())
			out << whole.count() << name << ' ';
		duration -= whole;
	};
	part(Days(), "d");
	part(hours(), "h");
	part(minutes(), "min");
	out << duration_cast<std::chrono::duration<double>>(duration).count() << 's';
	return out.str();
}

int weekday(Time time)
{
	auto days = floor_days(time).count() + 4; // 1970-01-01 was a Thursday
	return int((days % 7 + 7) % 7);
}

} // namespace toolbox
