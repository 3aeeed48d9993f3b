#include "sampler.h"
#include <algorithm>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string_view>

namespace toolbox
{

std::vector<int> Sampler::permutation(int n)
{
	std::vector<int> numbers(static_cast<std::size_t>(n));
	std::iota(numbers.begin(), numbers.end(), 0);
	std::shuffle(numbers.begin(), numbers.end(), engine_);
	return numbers;
}

std::vector<double> Sampler::normal(std::size_t n, double mean, double deviation)
{
	std::normal_distribution<double> distribution(mean, deviation);
	std::vector<double> numbers;
	numbers.reserve(n);
	std::generate_n(std::back_inserter(numbers), n, [&] { return distribution(engine_); });
	return numbers;
}

std::vector<std::string> Sampler::choose(const std::vector<std::string> &from, std::size_t n)
{
	std::vector<std::string> chosen;
	std::sample(from.begin(), from.end(), std::back_inserter(chosen), n, engine_);
	return chosen;
}

std::vector<std::size_t> Sampler::weighted(const std::vector<double> &weights, std::size_t draws)
{
	if (std::any_of(weights.begin(), weights.end(), [](double w) { return w < 0; }))
		throw std::invalid_argument("sampler: a weight is negative");
	std::discrete_distribution<std::size_t> distribution(weights.begin(), weights.end());
	std::vector<std::size_t> counts(weights.size());
	while (draws--)
		counts[distribution(engine_)]++;
	return counts;
}

std::string Sampler::identifier(std::size_t length)
{
	static const std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
	std::uniform_int_distribution<std::size_t> any(0, letters.size() - 1), first(0, 25);
	std::string name;
	std::generate_n(std::back_inserter(name), length,
			[&] { return letters[name.empty() ? first(engine_) : any(engine_)]; });
	return name;
}

} // namespace toolbox
