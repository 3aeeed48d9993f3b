find tree | sort
find tree -name '*.txt' -size -100c | wc -l
find tree -type l -printf '%p %l\n'
find tree -perm 600
find tree -newermt 2023-01-01 -type f | wc -l
find tree -depth -name 'f5*' -delete
find tree -type f | wc -l
