#include "system.h"
#include <fstream>
#include <stdexcept>

namespace toolbox
{

// A record is: kind, the sizes of key and value, and these; "+3 5 keyvalue\n" or "-3 0 key\n".
Store::Store(std::filesystem::path file) : file_(std::move(file))
{
	std::ifstream in(file_, std::ios::binary);
	char kind;
	std::size_t key_size, value_size;
	while (in >> kind >> key_size >> value_size) {
		std::string key(key_size, '\0'), value(value_size, '\0');
		in.ignore(1);
		in.read(key.data(), std::streamsize(key.size()));
		in.read(value.data(), std::streamsize(value.size()));
		if (!in || in.get() != '\n')
			throw std::runtime_error("store: a record of " + file_.string() +
						 " is cut off");
		if (kind == '+')
			values_.insert_or_assign(std::move(key), std::move(value));
		else
			values_.erase(key);
	}
}

void Store::append(std::ostream &out, char kind, const std::string &key,
		   const std::string &value) const
{
	out << kind << key.size() << ' ' << value.size() << ' ' << key << value << '\n';
	if (!out.flush())
		throw std::runtime_error("store: cannot write " + file_.string());
}

void Store::put(const std::string &key, const std::string &value)
{
	std::ofstream out(file_, std::ios::binary | std::ios::app);
	append(out, '+', key, value);
	values_.insert_or_assign(key, value);
}

bool Store::remove(const std::string &key)
{
	if (!values_.count(key))
		return false;
	std::ofstream out(file_, std::ios::binary | std::ios::app);
	append(out, '-', key, "");
	return values_.erase(key) != 0;
}

std::optional<std::string> Store::get(const std::string &key) const
{
	auto it = values_.find(key);
	return it == values_.end() ? std::nullopt : std::make_optional(it->second);
}

// The new log takes the old one's place in one step.
void Store::compact()
{
	auto fresh = file_;
	fresh += ".new";
	{
		std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
		for (const auto &[key, value] : values_)
			append(out, '+', key, value);
	}
	std::filesystem::rename(fresh, file_);
}

} // namespace toolbox
