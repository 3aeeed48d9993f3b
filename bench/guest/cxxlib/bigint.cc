#include "numbers.h"
#include <algorithm>
#include <iomanip>
#include <numeric>
#include <ostream>
#include <sstream>
#include <stdexcept>

namespace toolbox
{

namespace
{
constexpr std::uint64_t base = 1000000000;
constexpr std::size_t digits = 9;
} // namespace

BigInt::BigInt(std::uint64_t value)
{
	for (; value; value /= base)
		limbs_.push_back(std::uint32_t(value % base));
}

BigInt::BigInt(std::string_view decimal)
{
	if (decimal.empty() || decimal.find_first_not_of("0123456789") != std::string_view::npos)
		throw std::invalid_argument("not a number: " + std::string(decimal));
	while (!decimal.empty()) {
		auto n = std::min(digits, decimal.size());
		limbs_.push_back(
			std::uint32_t(std::stoul(std::string(decimal.substr(decimal.size() - n)))));
		decimal.remove_suffix(n);
	}
	trim();
}

void BigInt::trim()
{
	auto top =
		std::find_if(limbs_.rbegin(), limbs_.rend(), [](auto limb) { return limb != 0; });
	limbs_.erase(top.base(), limbs_.end());
}

std::string BigInt::str() const
{
	if (limbs_.empty())
		return "0";
	std::ostringstream out;
	out << limbs_.back() << std::setfill('0');
	std::for_each(std::next(limbs_.rbegin()), limbs_.rend(),
		      [&](auto limb) { out << std::setw(int(digits)) << limb; });
	return out.str();
}

BigInt &BigInt::operator+=(const BigInt &other)
{
	std::uint64_t carry = 0;
	limbs_.resize(std::max(limbs_.size(), other.limbs_.size()));
	for (std::size_t i = 0; i < limbs_.size(); i++) {
		carry += limbs_[i] + std::uint64_t(i < other.limbs_.size() ? other.limbs_[i] : 0);
		limbs_[i] = std::uint32_t(carry % base);
		carry /= base;
	}
	if (carry)
		limbs_.push_back(std::uint32_t(carry));
	return *this;
}

BigInt &BigInt::operator-=(const BigInt &other)
{
	if (*this < other)
		throw std::underflow_error("a natural number below zero");
	std::int64_t borrow = 0;
	for (std::size_t i = 0; i < limbs_.size(); i++) {
		std::int64_t rest =
			limbs_[i] - borrow - (i < other.limbs_.size() ? other.limbs_[i] : 0);
		borrow = rest < 0;
		limbs_[i] = std::uint32_t(rest + borrow * std::int64_t(base));
	}
	trim();
	return *this;
}

BigInt operator*(const BigInt &a, const BigInt &b)
{
	BigInt product;
	product.limbs_.resize(a.limbs_.size() + b.limbs_.size());
	for (std::size_t i = 0; i < a.limbs_.size(); i++) {
		std::uint64_t carry = 0;
		for (std::size_t j = 0; j < b.limbs_.size() || carry; j++) {
			carry += product.limbs_[i + j];
			if (j < b.limbs_.size())
				carry += std::uint64_t(a.limbs_[i]) * b.limbs_[j];
			product.limbs_[i + j] = std::uint32_t(carry % base);
			carry /= base;
		}
	}
	product.trim();
	return product;
}

bool operator<(const BigInt &a, const BigInt &b)
{
	if (a.limbs_.size() != b.limbs_.size())
		return a.limbs_.size() < b.limbs_.size();
	return std::lexicographical_compare(a.limbs_.rbegin(), a.limbs_.rend(), b.limbs_.rbegin(),
					    b.limbs_.rend());
}

std::ostream &operator<<(std::ostream &out, const BigInt &value)
{
	return out << value.str();
}

BigInt factorial(unsigned n)
{
	std::vector<BigInt> factors;
	for (unsigned i = 2; i <= n; i++)
		factors.emplace_back(i);
	return std::accumulate(factors.begin(), factors.end(), BigInt(1), std::multiplies<>());
}

} // namespace toolbox
