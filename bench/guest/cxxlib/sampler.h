// Random numbers, samples and names.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace toolbox
{

// Draws that are the same for the same seed.
class Sampler
{
      public:
	explicit Sampler(std::uint32_t seed) : engine_(seed)
	{
	}
	std::vector<int> permutation(int n);
	std::vector<double> normal(std::size_t n, double mean, double deviation);
	std::vector<std::string> choose(const std::vector<std::string> &from, std::size_t n);
	std::vector<std::size_t> weighted(const std::vector<double> &weights, std::size_t draws);
	std::string identifier(std::size_t length);

      private:
	std::mt19937 engine_;
};

} // namespace toolbox
