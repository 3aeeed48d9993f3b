#include "numbers.h"
#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace toolbox
{

Matrix::Matrix(std::size_t rows, std::size_t columns)
    : rows_(rows), columns_(columns), cells_(0.0, rows * columns)
{
}

Matrix::Matrix(std::initializer_list<std::initializer_list<double>> rows)
    : Matrix(rows.size(), rows.size() ? rows.begin()->size() : 0)
{
	auto cell = std::begin(cells_);
	for (const auto &row : rows) {
		if (row.size() != columns_)
			throw std::invalid_argument("matrix: rows of unequal length");
		cell = std::copy(row.begin(), row.end(), cell);
	}
}

Matrix Matrix::identity(std::size_t n)
{
	Matrix m(n, n);
	m.cells_[std::slice(0, n, n + 1)] = 1.0;
	return m;
}

double &Matrix::at(std::size_t row, std::size_t column)
{
	if (row >= rows_ || column >= columns_)
		throw std::out_of_range("matrix: no such cell");
	return cells_[row * columns_ + column];
}

double Matrix::at(std::size_t row, std::size_t column) const
{
	return const_cast<Matrix *>(this)->at(row, column);
}

Matrix Matrix::transposed() const
{
	Matrix result(columns_, rows_);
	for (std::size_t row = 0; row < rows_; row++)
		result.cells_[std::slice(row, columns_, rows_)] =
			std::valarray<double>(cells_[std::slice(row * columns_, columns_, 1)]);
	return result;
}

Matrix operator*(const Matrix &a, const Matrix &b)
{
	if (a.columns_ != b.rows_)
		throw std::invalid_argument("matrix: sizes do not fit");
	Matrix result(a.rows_, b.columns_);
	for (std::size_t i = 0; i < a.rows_; i++)
		for (std::size_t j = 0; j < b.columns_; j++) {
			std::valarray<double> row =
				a.cells_[std::slice(i * a.columns_, a.columns_, 1)];
			std::valarray<double> column = b.cells_[std::slice(j, b.rows_, b.columns_)];
			result.at(i, j) = (row * column).sum();
		}
	return result;
}

namespace
{

// Gauss-Jordan elimination with pivots; what is done to `m` is done to `other`. The determinant.
double eliminate(Matrix &m, Matrix &other)
{
	auto n = m.rows();
	double determinant = 1;
	auto swap_rows = [n](Matrix &x, std::size_t a, std::size_t b) {
		for (std::size_t c = 0; c < n; c++)
			std::swap(x.at(a, c), x.at(b, c));
	};
	for (std::size_t i = 0; i < n; i++) {
		std::size_t pivot = i;
		for (std::size_t r = i + 1; r < n; r++)
			if (std::abs(m.at(r, i)) > std::abs(m.at(pivot, i)))
				pivot = r;
		if (std::abs(m.at(pivot, i)) < 1e-12)
			return 0;
		if (pivot != i) {
			swap_rows(m, i, pivot);
			swap_rows(other, i, pivot);
			determinant = -determinant;
		}
		double scale = m.at(i, i);
		determinant *= scale;
		for (std::size_t c = 0; c < n; c++) {
			m.at(i, c) /= scale;
			other.at(i, c) /= scale;
		}
		for (std::size_t r = 0; r < n; r++) {
			double factor = m.at(r, i);
			for (std::size_t c = 0; r != i && c < n; c++) {
				m.at(r, c) -= factor * m.at(i, c);
				other.at(r, c) -= factor * other.at(i, c);
			}
		}
	}
	return determinant;
}

} // namespace

double Matrix::determinant() const
{
	if (rows_ != columns_)
		throw std::invalid_argument("matrix: not square");
	Matrix m = *this, other = identity(rows_);
	return eliminate(m, other);
}

std::optional<Matrix> Matrix::inverse() const
{
	if (rows_ != columns_)
		throw std::invalid_argument("matrix: not square");
	Matrix m = *this, other = identity(rows_);
	return eliminate(m, other) == 0 ? std::nullopt : std::make_optional(other);
}

} // namespace toolbox
