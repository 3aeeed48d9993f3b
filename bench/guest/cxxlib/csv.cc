#include "data.h"
#include <algorithm>
#include <istream>
#include <iterator>
#include <ostream>
#include <stdexcept>
#include <utility>

namespace toolbox
{

namespace
{

enum class State { start, plain, quoted, quote_in_quoted };

class Reader
{
      public:
	void feed(char c)
	{
		switch (state_) {
		case State::quoted:
			if (c == '"')
				state_ = State::quote_in_quoted;
			else
				field_ += c;
			return;
		case State::quote_in_quoted:
			if (c == '"') {
				field_ += c;
				state_ = State::quoted;
				return;
			}
			break;
		case State::start:
			if (c == '"') {
				state_ = State::quoted;
				return;
			}
			break;
		case State::plain: break;
		}
		if (c == ',')
			end_field();
		else if (c == '\n')
			end_row();
		else if (c != '\r') {
			field_ += c;
			state_ = State::plain;
		}
	}
	std::vector<CsvRow> finish()
	{
		if (state_ == State::quoted)
			throw std::runtime_error("csv: a quote is not closed");
		if (!row_.empty() || !field_.empty())
			end_row();
		return std::move(rows_);
	}

      private:
	void end_field()
	{
		row_.push_back(std::exchange(field_, {}));
		state_ = State::start;
	}
	void end_row()
	{
		end_field();
		rows_.push_back(std::exchange(row_, {}));
	}

	State state_ = State::start;
	std::string field_;
	CsvRow row_;
	std::vector<CsvRow> rows_;
};

void write_field(std::ostream &out, const std::string &field)
{
	if (field.find_first_of(",\"\r\n") == std::string::npos) {
		out << field;
		return;
	}
	out << '"';
	for (char c : field)
		out << (c == '"' ? "\"\"" : std::string(1, c));
	out << '"';
}

} // namespace

std::vector<CsvRow> read_csv(std::istream &in)
{
	Reader reader;
	std::for_each(std::istreambuf_iterator<char>(in), {}, [&](char c) { reader.feed(c); });
	return reader.finish();
}

void write_csv(std::ostream &out, const std::vector<CsvRow> &rows)
{
	for (const auto &row : rows) {
		for (std::size_t i = 0; i < row.size(); i++) {
			if (i)
				out << ',';
			write_field(out, row[i]);
		}
		out << '\n';
	}
}

} // namespace toolbox
