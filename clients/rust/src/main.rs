//! The AWS SDK for Rust against one endpoint: objects, ranges, listings, multipart, copies,
//! presigned URLs. Usage: rust-client-check URL BUCKET, with the keys in `AWS_ACCESS_KEY_ID` and
//! `AWS_SECRET_ACCESS_KEY`. The first wrong answer ends it with a message.

use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    ChecksumAlgorithm, ChecksumMode, CompletedMultipartUpload, CompletedPart, Delete,
    ObjectIdentifier,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const MIB: usize = 1 << 20;
const KEYS: [&str; 8] =
    ["with space", "plus+", "per%cent", "a//b", "up/../x", "grüße/世界", "q?a=b&c#d", "📦"];

struct Check {
    client: Client,
    bucket: String,
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|n| (n ^ (n >> 8) ^ (n >> 16)) as u8).collect()
}

impl Check {
    async fn put(&self, key: &str, body: Vec<u8>) -> Outcome {
        let put = self.client.put_object().bucket(&self.bucket).key(key);
        put.metadata("colour", "blue").body(ByteStream::from(body)).send().await?;
        Ok(())
    }

    async fn get(
        &self,
        key: &str,
        range: Option<&str>,
    ) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let get = self.client.get_object().bucket(&self.bucket).key(key);
        let answer = get.set_range(range.map(str::to_owned)).send().await?;
        Ok(answer.body.collect().await?.to_vec())
    }

    async fn objects(&self) -> Outcome {
        for size in [0, 5, MIB - 1, MIB + 1, 5 * MIB] {
            self.put("object", bytes(size)).await?;
            assert_eq!(self.get("object", None).await?, bytes(size));
            let head = self.client.head_object().bucket(&self.bucket).key("object").send().await?;
            assert_eq!(head.content_length(), Some(size as i64));
            assert_eq!(
                head.metadata().and_then(|m| m.get("colour")).map(String::as_str),
                Some("blue")
            );
        }
        let part = self.get("object", Some("bytes=1048570-1048580")).await?;
        assert_eq!(part, bytes(5 * MIB)[1_048_570..=1_048_580]);
        Ok(())
    }

    async fn checksums(&self) -> Outcome {
        use ChecksumAlgorithm::{Crc32, Crc32C, Crc64Nvme, Sha1, Sha256};
        for algorithm in [Crc32, Crc32C, Crc64Nvme, Sha1, Sha256] {
            let put = self.client.put_object().bucket(&self.bucket).key("sum");
            put.checksum_algorithm(algorithm)
                .body(ByteStream::from_static(b"hello"))
                .send()
                .await?;
            let get = self.client.get_object().bucket(&self.bucket).key("sum");
            let answer = get.checksum_mode(ChecksumMode::Enabled).send().await?;
            assert_eq!(answer.body.collect().await?.to_vec(), b"hello");
        }
        Ok(())
    }

    async fn keys(&self) -> Outcome {
        for key in KEYS {
            self.put(&format!("k/{key}"), key.into()).await?;
            assert_eq!(self.get(&format!("k/{key}"), None).await?, key.as_bytes());
        }
        let list = self.client.list_objects_v2().bucket(&self.bucket).prefix("k/").max_keys(3);
        let mut pages = list.into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            found.extend(page?.contents().iter().filter_map(|o| o.key().map(str::to_owned)));
        }
        let mut wanted: Vec<_> = KEYS.iter().map(|k| format!("k/{k}")).collect();
        wanted.sort();
        assert_eq!(found, wanted);
        let copy = self.client.copy_object().bucket(&self.bucket).key("copy");
        copy.copy_source(format!("{}/k/plus%2B", self.bucket)).send().await?;
        assert_eq!(self.get("copy", None).await?, b"plus+");
        let ids = wanted.iter().map(|k| ObjectIdentifier::builder().key(k).build());
        let delete = Delete::builder().set_objects(Some(ids.collect::<Result<_, _>>()?)).build()?;
        let gone = self.client.delete_objects().bucket(&self.bucket).delete(delete).send().await?;
        assert_eq!(gone.deleted().len(), KEYS.len());
        Ok(())
    }

    async fn multipart(&self) -> Outcome {
        let (client, bucket, key) = (&self.client, &self.bucket, "multipart");
        let made = client.create_multipart_upload().bucket(bucket).key(key).send().await?;
        let id = made.upload_id().ok_or("no upload id")?;
        let bodies = [bytes(5 * MIB), bytes(MIB + 1)];
        let mut parts = Vec::new();
        for (number, body) in (1..).zip(&bodies) {
            let part = client.upload_part().bucket(bucket).key(key).upload_id(id);
            let done = part.part_number(number).body(body.clone().into()).send().await?;
            parts.push(
                CompletedPart::builder()
                    .part_number(number)
                    .set_e_tag(done.e_tag().map(str::to_owned))
                    .set_checksum_crc32(done.checksum_crc32().map(str::to_owned))
                    .build(),
            );
        }
        let whole = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        client
            .complete_multipart_upload()
            .bucket(bucket)
            .key(key)
            .upload_id(id)
            .multipart_upload(whole)
            .send()
            .await?;
        assert_eq!(self.get(key, None).await?, bodies.concat());
        Ok(())
    }

    async fn presigned(&self) -> Outcome {
        let hour = PresigningConfig::expires_in(Duration::from_secs(3600))?;
        let put = self.client.put_object().bucket(&self.bucket).key("presigned +");
        let url = put.presigned(hour.clone()).await?;
        let http = reqwest::Client::new();
        let sent = http.put(url.uri()).body("hello").send().await?;
        assert!(sent.status().is_success(), "{}", sent.text().await?);
        let get = self.client.get_object().bucket(&self.bucket).key("presigned +");
        let text = http.get(get.presigned(hour).await?.uri()).send().await?.text().await?;
        assert_eq!(text, "hello");
        Ok(())
    }

    async fn errors(&self) -> Outcome {
        let get = self.client.get_object().bucket(&self.bucket).key("none");
        let error = get.send().await.expect_err("the key does not exist");
        assert_eq!(error.code(), Some("NoSuchKey"));
        let put = self.client.put_object().bucket(&self.bucket).key("copy").if_none_match("*");
        let error = put.send().await.expect_err("the key exists");
        assert_eq!(error.code(), Some("PreconditionFailed"));
        self.client.delete_object().bucket(&self.bucket).key("none").send().await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(bucket)) = (arguments.next(), arguments.next()) else {
        return Err("usage: rust-client-check URL BUCKET".into());
    };
    let shared = aws_config::from_env().endpoint_url(url).load().await;
    let config = aws_sdk_s3::config::Builder::from(&shared)
        .force_path_style(true)
        .retry_config(RetryConfig::disabled());
    let check = Check { client: Client::from_conf(config.build()), bucket };
    check.objects().await?;
    check.checksums().await?;
    check.keys().await?;
    check.multipart().await?;
    check.presigned().await?;
    check.errors().await?;
    println!("all checks passed");
    Ok(())
}
