# needs: git
export HOME=$PWD GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
git config --global user.email t@example.invalid; git config --global user.name tester; git config --global init.defaultBranch main
git init -q repo && cd repo && cp -r ../tree . && git add -A && git commit -q -m first && git log --oneline | cat
echo change >>tree/a/x/f1.txt && git diff --stat | cat && git commit -qam second && git branch topic && git checkout -q topic
echo topic >new && git add new && git commit -qm third && git checkout -q main && git merge -q topic && git log --oneline | wc -l
git clone -q . ../clone && cd ../clone && git fsck && git gc -q && git status --short && git rev-parse HEAD
