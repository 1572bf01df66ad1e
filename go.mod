module github.com/verbena-rdma/verbena

go 1.25.0
