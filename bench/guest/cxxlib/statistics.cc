#include "numbers.h"
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <numeric>
#include <ostream>
#include <stdexcept>

namespace toolbox
{

double quantile(std::vector<double> samples, double q)
{
	if (samples.empty())
		throw std::invalid_argument("quantile of nothing");
	double position = std::clamp(q, 0.0, 1.0) * double(samples.size() - 1);
	auto below = samples.begin() + std::ptrdiff_t(position);
	std::nth_element(samples.begin(), below, samples.end());
	auto above = std::min_element(std::next(below), samples.end());
	double fraction = position - std::floor(position);
	return above == samples.end() ? *below : *below + fraction * (*above - *below);
}

Summary summarize(std::vector<double> samples)
{
	double median = quantile(samples, 0.5);
	auto [least, most] = std::minmax_element(samples.begin(), samples.end());
	double n = double(samples.size());
	double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
	double squares =
		std::transform_reduce(samples.begin(), samples.end(), 0.0, std::plus<>(),
				      [mean](double x) { return (x - mean) * (x - mean); });
	double deviation = samples.size() < 2 ? 0 : std::sqrt(squares / (n - 1));
	return { samples.size(), mean, deviation, *least, median, *most };
}

double correlation(const std::vector<double> &x, const std::vector<double> &y)
{
	if (x.size() != y.size())
		throw std::invalid_argument("correlation of vectors of unequal length");
	auto a = summarize(x), b = summarize(y);
	double sum =
		std::inner_product(x.begin(), x.end(), y.begin(), 0.0, std::plus<>(),
				   [&](double p, double q) { return (p - a.mean) * (q - b.mean); });
	return sum / (double(x.size() - 1) * a.deviation * b.deviation);
}

void print_histogram(std::ostream &out, const std::vector<double> &samples, int bins)
{
	auto summary = summarize(samples);
	double width = (summary.maximum - summary.minimum) / bins;
	std::vector<std::size_t> counts(std::size_t(bins), 0);
	for (double sample : samples) {
		int bin = width > 0 ? int((sample - summary.minimum) / width) : 0;
		counts[std::size_t(std::min(bin, bins - 1))]++;
	}
	auto highest = *std::max_element(counts.begin(), counts.end());
	out << std::fixed << std::setprecision(2);
	for (std::size_t i = 0; i < counts.size(); i++)
		out << std::setw(10) << summary.minimum + double(i) * width << " |"
		    << std::setfill('#') << std::setw(int(40 * counts[i] / highest)) << ""
		    << std::setfill(' ') << ' ' << counts[i] << '\n';
}

} // namespace toolbox
