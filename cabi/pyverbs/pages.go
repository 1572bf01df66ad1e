package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// hugePageTests matches the tests that need huge pages. The suite skips them only if the system has none at all, and
// they fail if other programs use all it has.
var hugePageTests = regexp.MustCompile(`huge`)

const (
	// pagesNeeded is the number of free huge pages that a run of the suite needs: a test has two at a time, and the
	// pages of the one before may still be in use.
	pagesNeeded = 8
	pagesFile   = "/proc/sys/vm/nr_hugepages"
)

// reserved is the number of huge pages that this process has reserved.
var reserved int

// reservePages reserves huge pages until pagesNeeded are free. It returns false if other programs use the system's
// huge pages, and this process has not the right, or the system not the memory, to reserve more.
func reservePages() bool {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return true
	}
	total, free := pages(string(text))
	if free >= pagesNeeded {
		return true
	}
	if err := os.WriteFile(pagesFile, []byte(strconv.Itoa(total+pagesNeeded-free)), 0); err != nil {
		return total == 0 // the suite skips the tests
	}
	if text, err = os.ReadFile("/proc/meminfo"); err != nil {
		return true
	}
	now, free := pages(string(text))
	reserved += max(0, now-total)
	return free >= pagesNeeded
}

// returnPages gives back the huge pages that this process has reserved.
func returnPages() {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil || reserved == 0 {
		return
	}
	total, _ := pages(string(text))
	_ = os.WriteFile(pagesFile, []byte(strconv.Itoa(max(0, total-reserved))), 0)
	reserved = 0
}

// pages returns the number of huge pages that /proc/meminfo shows, and how many of them nobody uses or has reserved.
func pages(meminfo string) (total, free int) {
	for line := range strings.Lines(meminfo) {
		var n int
		name, value, _ := strings.Cut(line, ":")
		if _, err := fmt.Sscan(value, &n); err != nil {
			continue
		}
		switch name {
		case "HugePages_Total":
			total = n
		case "HugePages_Free":
			free += n
		case "HugePages_Rsvd":
			free -= n
		}
	}
	return total, free
}
