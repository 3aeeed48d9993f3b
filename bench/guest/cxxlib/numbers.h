// Numbers: statistics, matrices, big integers, expressions, dates, intervals.
#pragma once
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <valarray>
#include <vector>

namespace toolbox
{

struct Summary {
	std::size_t count;
	double mean, deviation, minimum, median, maximum;
};
Summary summarize(std::vector<double> samples); // throws when there are none
double quantile(std::vector<double> samples, double q);
double correlation(const std::vector<double> &x, const std::vector<double> &y);
void print_histogram(std::ostream &out, const std::vector<double> &samples, int bins);

class Matrix
{
      public:
	Matrix(std::size_t rows, std::size_t columns);
	Matrix(std::initializer_list<std::initializer_list<double>> rows);
	static Matrix identity(std::size_t n);
	double &at(std::size_t row, std::size_t column);
	double at(std::size_t row, std::size_t column) const;
	std::size_t rows() const
	{
		return rows_;
	}
	std::size_t columns() const
	{
		return columns_;
	}
	Matrix transposed() const;
	double determinant() const;
	std::optional<Matrix> inverse() const; // none when it is singular
	friend Matrix operator*(const Matrix &a, const Matrix &b);

      private:
	std::size_t rows_, columns_;
	std::valarray<double> cells_;
};

// Natural numbers of any size.
class BigInt
{
      public:
	BigInt(std::uint64_t value = 0);
	explicit BigInt(std::string_view decimal);
	std::string str() const;
	BigInt &operator+=(const BigInt &other);
	BigInt &operator-=(const BigInt &other); // throws when the result would be negative
	friend BigInt operator*(const BigInt &a, const BigInt &b);
	friend bool operator<(const BigInt &a, const BigInt &b);
	friend bool operator==(const BigInt &a, const BigInt &b)
	{
		return a.limbs_ == b.limbs_;
	}

      private:
	void trim();
	std::vector<std::uint32_t> limbs_; // to the base 10^9, lowest first, no leading zeroes
};
std::ostream &operator<<(std::ostream &out, const BigInt &value);
BigInt factorial(unsigned n);

// Arithmetic with + - * / ^, parentheses, names and functions of one or two arguments.
class Expression
{
      public:
	struct Node {
		virtual ~Node() = default;
		virtual double value(const std::map<std::string, double> &names) const = 0;
		virtual std::string str() const = 0;
	};
	static Expression parse(std::string_view text); // throws what is wrong with it
	double operator()(const std::map<std::string, double> &names = {}) const;
	std::string str() const; // with all parentheses

      private:
	std::shared_ptr<const Node> root_;
};

using Time = std::chrono::time_point<std::chrono::system_clock, std::chrono::seconds>;
std::string format_time(Time time); // 2001-02-03T04:05:06Z
std::optional<Time> parse_time(const std::string &text);
std::string describe(std::chrono::milliseconds duration); // 1d 2h 3min 4.005s
int weekday(Time time);					  // 0 is Sunday

// A set of numbers kept as half-open intervals.
class IntervalSet
{
      public:
	void add(std::int64_t from, std::int64_t to);
	void remove(std::int64_t from, std::int64_t to);
	bool contains(std::int64_t value) const;
	std::int64_t size() const;
	std::vector<std::pair<std::int64_t, std::int64_t>> gaps() const;
	friend std::ostream &operator<<(std::ostream &out, const IntervalSet &set);

      private:
	std::map<std::int64_t, std::int64_t> intervals_; // from, to
};

} // namespace toolbox
