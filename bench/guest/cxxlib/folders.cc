#include "system.h"
#include <algorithm>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>

namespace toolbox
{

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder()
{
	std::random_device random;
	for (int attempt = 0; attempt < 100; attempt++) {
		std::ostringstream name;
		name << "toolbox." << std::hex << random();
		path_ = fs::temp_directory_path() / name.str();
		if (fs::create_directory(path_))
			return;
	}
	throw fs::filesystem_error("no temporary folder", path_,
				   std::make_error_code(std::errc::file_exists));
}

TemporaryFolder::~TemporaryFolder()
{
	std::error_code ignored;
	fs::remove_all(path_, ignored);
}

Usage disk_usage(const fs::path &root)
{
	Usage usage;
	for (const auto &entry : fs::recursive_directory_iterator(root)) {
		if (entry.is_directory()) {
			usage.folders++;
		} else if (entry.is_regular_file()) {
			usage.files++;
			usage.bytes += entry.file_size();
			usage.by_extension[entry.path().extension().string()] += entry.file_size();
		}
	}
	return usage;
}

std::vector<fs::path> newest(const fs::path &root, std::size_t n)
{
	std::vector<fs::directory_entry> files;
	std::copy_if(fs::recursive_directory_iterator(root), {}, std::back_inserter(files),
		     [](const fs::directory_entry &entry) { return entry.is_regular_file(); });
	n = std::min(n, files.size());
	std::partial_sort(files.begin(), files.begin() + std::ptrdiff_t(n), files.end(),
			  [](const auto &a, const auto &b) {
				  return std::make_pair(b.last_write_time(), a.path()) <
					 std::make_pair(a.last_write_time(), b.path());
			  });
	return { files.begin(), files.begin() + std::ptrdiff_t(n) };
}

} // namespace toolbox
